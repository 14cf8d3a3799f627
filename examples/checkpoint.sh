#!/bin/sh
# A job that computes and writes checkpoints to the burst buffer.
#
# It sums the numbers of its input over and over, as a solver would step through time. Every
# step's state is written to the buffer as a checkpoint. A job that finds checkpoints there goes
# on after the last one. At the end the results are staged out beside the script's input.
#
#     forebay run examples/checkpoint.sh [STEPS [SECONDS_PER_STEP]]
#
# Input is read from ./input, a directory with files of numbers, one a line; results go to
# ./results.
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

# The state goes on from the newest whole checkpoint, if there is one.
step=0
state=0
for checkpoint in "${buffer}results/checkpoints/"step-*; do
    [ -e "$checkpoint" ] || continue
    step=$(sed -n 's/^step //p' "$checkpoint")
    state=$(sed -n 's/^state //p' "$checkpoint")
done

while [ "$step" -lt "$steps" ]; do
    step=$((step + 1))
    for file in "${buffer}input/"*; do
        while read -r number; do
            state=$(((state * 31 + number) % 1000003))
        done <"$file"
    done
    # A checkpoint has its name only once it is whole: first another one, then renamed.
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
