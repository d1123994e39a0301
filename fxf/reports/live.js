"use strict";
// Polls the server for new data while the page is visible, and passes them to the page's `update`.

const notice = element("p", { class: "bad", hidden: "" });
let last = "";

async function newer() {
  const answer = await fetch(location.pathname.replace(/\/?$/, "/data.json"));
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.text();
}

async function follow() {
  const start = performance.now();
  if (!document.hidden && !view.dragging) {
    try {
      const text = await newer();
      notice.hidden = true;
      if (text !== last) update(JSON.parse(last = text));
    } catch (error) {
      notice.textContent = `These are the last figures: fxf report --live does not answer (${error.message}).`;
      notice.hidden = false;
    }
  }
  // Reading many runs may take long, so polling takes at most about a tenth of the time.
  setTimeout(follow, Math.max(1000, 10 * (performance.now() - start)));
}

document.body.prepend(notice);
setTimeout(follow, 1000);
