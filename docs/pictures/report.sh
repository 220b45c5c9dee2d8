#!/bin/sh
# Makes the pictures of docs/report.md, in a folder of its own, within six minutes of a quiet machine:
# four layers whose default schedules leave something, tuned with two seeds each, then benched.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
layers=$here/../../examples/layers
work=$(mktemp -d)
cd "$work"
for layer in depthwise_7 depthwise_14 max_pool one_query; do
    for seed in 3 4; do
        nestwright tune "$layers/$layer.hlo" --target "cpu -threads=1" --trials 64 --seconds 25 \
            --seed $seed --log "logs/$layer.$seed.jsonl"
    done
done
nestwright bench "$layers/depthwise_7.hlo" "$layers/depthwise_14.hlo" "$layers/max_pool.hlo" \
    "$layers/one_query.hlo" --threads 1 --log logs --peers jax --callers 2 --attribute 10 --profile \
    --json report.json --html report.html
picture() {
    chromium --headless --no-sandbox --hide-scrollbars --window-size="$2" \
        --blink-settings=preferredColorScheme="$3" --screenshot="$here/$1" report.html 2> chromium.log
}
picture report.png 1200,3000 1
picture report-narrow.png 400,1900 0
echo "the report is $work/report.html"
