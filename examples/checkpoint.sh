#!/bin/sh
# A job that computes and writes checkpoints to the burst buffer.
#
#     forebay run examples/checkpoint.sh [STEPS [SECONDS_PER_STEP]]
#
# Run it in a directory with `input/`, which contains files of numbers (`*.txt`, one per line). It
# sums them repeatedly, as a solver steps through time, and writes the state of every step to the
# buffer as a checkpoint. At the end the results are in `results/`.
#
# To continue after an interrupted run: `forebay recover`, then `mv results/checkpoints input/`, and
# run it again.
#
#DW jobdw capacity=256MiB type=scratch access_mode=striped
#DW stage_in  type=directory source=%d/input destination=$DW_JOB_STRIPED/input
#DW stage_out type=directory source=$DW_JOB_STRIPED/results \
#DW           destination=%d/results
set -eu

steps=${1:-5}
pause=${2:-0}
buffer=$DW_JOB_STRIPED
mkdir -p "${buffer}results/checkpoints"

# Go on from the newest checkpoint, if the input has one.
step=0
state=0
for checkpoint in "${buffer}input/checkpoints/"step-*; do
    [ -e "$checkpoint" ] || continue
    step=$(sed -n 's/^step //p' "$checkpoint")
    state=$(sed -n 's/^state //p' "$checkpoint")
done

while [ "$step" -lt "$steps" ]; do
    step=$((step + 1))
    for file in "${buffer}input/"*.txt; do
        while read -r number; do
            state=$(((state * 31 + number) % 1000003))
        done <"$file"
    done
    # A checkpoint gets its name when it is whole, so a job that dies leaves no half one.
    name=$(printf 'step-%04d' "$step")
    {
        printf 'step %d\nstate %d\n' "$step" "$state"
        head -c 1048576 /dev/zero | tr '\0' '.'
    } >"${buffer}results/checkpoints/.$name"
    mv "${buffer}results/checkpoints/.$name" "${buffer}results/checkpoints/$name"
    ln -sf "checkpoints/$name" "${buffer}results/latest"
    echo "step $step of $steps: state $state"
    sleep "$pause"
done
echo "$state" >"${buffer}results/answer"
