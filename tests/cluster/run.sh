#!/bin/bash
# Trains one small run in two processes: unbroken under Open MPI, and under Open MPI and SLURM with processes killed and
# stopped on the way. All end with the same bits.
#
#   tests/cluster/run.sh
#
# It runs as root on a Debian machine, and installs slurm-wlm and openmpi-bin where they are missing. SLURM's daemons run
# on this machine alone, from a temporary folder; they end with the script.
set -euo pipefail
cd "$(dirname "$0")/../.."

LIMIT=60  # seconds in which a run that lost a process ends
WORK=$(mktemp -d)
export JAX_PLATFORMS=cpu SLURM_CONF=$WORK/slurm.conf XDG_CACHE_HOME=$WORK/cache
RUN=(--config=configs/reversal.py:example0 --config.train.steps=300 --config.log.every=10 --config.checkpoint.every=10)
# Bound to other cores than under SLURM, XLA would add up in another order, and the bits would differ.
MPI=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2)
TRAIN=(.venv/bin/python -m fxf train "${RUN[@]}")

say() { printf '%s\n' "$*"; }
fail() { say "FAILED: $*"; tail -n 20 "$WORK"/*.log; exit 1; }

daemons=()
finish() {
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$WORK"
}
trap finish EXIT

# Processes of the run in a folder, the launcher not among them.
processes() { pgrep -f "^[^ ]*python[^ ]* .*-m fxf train .*--workdir=$1( |\$)" || true; }
records() { cat "$1/metrics.jsonl" 2>/dev/null | wc -l; }

# until_true SECONDS COMMAND...: waits until a command succeeds.
until_true() {
    local end=$((SECONDS + $1)); shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
reached() { [ "$(records "$1")" -ge "$2" ]; }
gone() { ! kill -0 "$@" 2>/dev/null; }
finished() { [ -f "$1/result.json" ]; }

# kill_a_peer FOLDER: kills one of the two processes, and waits for the other to end.
kill_a_peer() {
    local pair start
    mapfile -t pair < <(processes "$1")
    [ ${#pair[@]} -eq 2 ] || fail "$1: expected two processes, found ${#pair[@]}"
    start=$SECONDS
    kill -KILL "${pair[1]}"
    until_true $LIMIT gone "${pair[0]}" || fail "$1: the other process was there after $LIMIT s"
    say "$1: the other process ended within $((SECONDS - start + 1)) s"
}

# same_bits FOLDER: its weights are those of the unbroken run, byte for byte.
same_bits() {
    .venv/bin/fxf export --workdir="$1" --format=safetensors --output="$1/weights.safetensors"
    cmp "$WORK/unbroken/weights.safetensors" "$1/weights.safetensors" || fail "$1: other weights"
}

for command in sbatch mpirun; do
    if ! command -v $command > /dev/null; then
        apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge openmpi-bin
    fi
done

say "== Open MPI, unbroken"
"${MPI[@]}" "${TRAIN[@]}" --config.parallel.processes=0 --workdir="$WORK/unbroken" > "$WORK/unbroken.log" 2>&1 ||
    fail "the unbroken run"
same_bits "$WORK/unbroken"

say "== Open MPI, a process killed"
"${MPI[@]}" "${TRAIN[@]}" --config.parallel.processes=0 --workdir="$WORK/mpi" > "$WORK/mpi.log" 2>&1 &
launcher=$!
until_true 300 reached "$WORK/mpi" 5 || fail "no fifth record"
kill_a_peer "$WORK/mpi"
if wait $launcher; then fail "mpirun called it a success"; fi
"${MPI[@]}" "${TRAIN[@]}" --config.parallel.processes=0 --workdir="$WORK/mpi" >> "$WORK/mpi.log" 2>&1 ||
    fail "the same command again"
grep -q "resuming at step" "$WORK/mpi.log" || fail "it started anew"
same_bits "$WORK/mpi"

say "== SLURM, a process killed, then all asked to stop"
cat > "$SLURM_CONF" <<END
ClusterName=fxf
SlurmctldHost=$(hostname)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool
SlurmctldPidFile=$WORK/slurmctld.pid
SlurmdPidFile=$WORK/slurmd.pid
ReturnToService=2
NodeName=$(hostname) CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
mkdir "$WORK/state" "$WORK/spool"
if ! munge -n > /dev/null 2>&1; then
    install -d -o munge -g munge /run/munge
    runuser -u munge -- /usr/sbin/munged --foreground > "$WORK/munged.log" 2>&1 &
    daemons+=($!)
    until_true 20 test -S /run/munge/munge.socket.2 || fail "munged"
fi
slurmctld -D > "$WORK/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D > "$WORK/slurmd.log" 2>&1 &
daemons+=($!)
node_is_up() { sinfo --noheader --format=%t 2>/dev/null | grep -q idle; }
until_true 60 node_is_up || fail "the node did not come up"

submit() {
    job=$(.venv/bin/fxf launch slurm "${RUN[@]}" --workdir="$WORK/slurm" --gpus=0 --cpus=1 --time=1:00:00 |
        sbatch --parsable --ntasks-per-node=2 --output="$WORK/slurm.log")
}
submit
is_pending() { squeue --noheader --job="$job" --format=%T | grep -q PENDING; }
# By itself SLURM starts a job that was put back two minutes later; at once, it would take it for the one that ended.
start_again() {
    until_true $LIMIT is_pending || fail "the job is not back in the queue"
    sleep 5
    scontrol update JobId="$job" StartTime=now
}
until_true 300 reached "$WORK/slurm" 5 || fail "no fifth record"
kill_a_peer "$WORK/slurm"
# A process that was killed, as where memory ran out, would be killed again: the job ends, and a user submits it anew.
has_ended() { [ -z "$(squeue --noheader --job="$job" 2>/dev/null)" ]; }
until_true $LIMIT has_ended || fail "the job of a killed process went back to the queue"
submit
until_true 300 reached "$WORK/slurm" 12 || fail "the job did not go on"
scancel --signal=TERM "$job"
until_true 60 grep -q "exit code 75: back to the queue" "$WORK/slurm.log" || fail "the run did not stop by exit code 75"
start_again
until_true 300 finished "$WORK/slurm" || fail "the job did not finish"
same_bits "$WORK/slurm"
say "all runs ended with the same bits"
