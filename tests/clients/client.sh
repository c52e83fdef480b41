#!/bin/sh
# client.sh [URL]: sends six tokens to the demo model, prints which token each one takes most from.
# curl repeats what was answered with 503 when Retry-After has passed; the file then begins anew.
set -eu
export LC_ALL=C # awk then prints a point, not a comma
url=${1:-http://127.0.0.1:8080}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

curl -sS --fail-with-body --retry 5 -o "$answer" "$url/v1/models/demo/attention" --json '{
  "inputs_embeds": [
    [1, 0,  0, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1],
    [1, 1,  1, 0, 1, 0, 0, 0, -1,  1, -1, -1, -1, -1, -1, -1],
    [1, 2,  4, 0, 0, 1, 0, 0,  1,  1,  1, -1, -1, -1, -1, -1],
    [1, 3,  9, 0, 0, 0, 1, 0,  1, -1,  1,  1, -1, -1, -1, -1],
    [1, 4, 16, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1],
    [1, 5, 25, 0, 1, 0, 0, 0, -1, -1,  1, -1, -1, -1, -1, -1]],
  "return_attentions": { "heads": [0] } }' || { cat "$answer" >&2; exit 1; }

rows() { # NAME: that member's rows of numbers, one a line
    awk -v name="$1" '{ sub(".*\"" name "\":\\[*", ""); sub("\\]\\].*", ""); gsub("\\],\\[", "\n"); print }' "$answer"
}

rows attentions | awk -F, '
    BEGIN { split("the cat sat on the mat", words, " ") }
    {
        best = 1
        for (j = 2; j <= NF; j++) if ($j > $best) best = j
        printf "%s looks at %s: %.4f\n", words[NR], words[best], $best
    }'
rows outputs | awk -F, '
    { for (j = 1; j <= NF; j++) sum += $j; width = NF }
    END { printf "outputs [%d,%d], sum %.4f\n", NR, width, sum }'
