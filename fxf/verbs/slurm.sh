#!/bin/bash
# Trains a run of fxf with one process in each task, and requeues the job each time that the run has saved and stopped.
# The processes find each other through SLURM. Each has one GPU, or the CPU. The folder below, the Python environment and
# the run folder must be on file systems that all nodes share. Flags of sbatch take precedence over those here.
#
#SBATCH --job-name=@name@
#SBATCH --output=@name@-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=@nodes@
#SBATCH --ntasks-per-node=@tasks@
#SBATCH --cpus-per-task=@cpus@
#SBATCH --time=@time@
#SBATCH --signal=TERM@120
#@gpus@
# --signal: the run saves its step and stops two minutes before its time is up.
set -u
cd @folder@ || exit 2
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$PWD/.cache}  # one folder of compiled programs for all nodes and restarts
RESTARTS=100  # maximum, for a run whose processes lose each other every time

# A process that has lost another one ends itself; --wait is for a process that cannot.
# srun does not inherit the number of cores from the job.
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 --wait=60 \
    @command@
code=$?

# 75: the run was asked to stop, or has lost a process, and resumes from the newest checkpoint. 0: finished. Other codes,
# such as 2 for wrong input, 1 for a fault in the code or 137 for a lack of memory, would only recur. If a node fails,
# SLURM itself requeues the job.
if [ $code -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt $RESTARTS ]; then
    echo "exit code $code: back to the queue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
