#!/usr/bin/env python3
"""seeds.py FOLDER: what each target begins with, from the corpus of failures and the configs of this repository."""
import hashlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "crates/aplomb-core/tests/corpus"
CONFIGS = ("examples/*/*.json", "crates/aplomb-cli/templates/*.json", "examples/*/*.yaml")
INPUTS = ("provider", "wire", "phase", "status", "headers", "body", "sse_event", "exception", "now")
# The same small config in the languages that hardly a file here is written in.
YAML = """version: "1.0"
agents:
  - id: a # the only one
    llm: {provider: mock, model: m, script: {steps: [{reply: {message: {text: "hi"}}}]}}
    tools: [{id: calc, type: calc}]
    retry: {session: {max_retries: 2, base_delay_ms: 1}}
"""
TOML = """version = "1.0"
[[agents]]
id = "a"
llm = { provider = "anthropic", model = "m", api_key_env = "KEY", retry = { max_attempts = 2, jitter = "none" } }
[agents.runtime]
max_steps = 3
[agents.memory]
type = "buffer"
"""
CODECS = ("openai_chat", "openai_responses", "anthropic", "gemini")


def failures():
    for name in ("dev.jsonl", "more.jsonl"):
        for line in (CORPUS / name).read_text(encoding="utf-8").splitlines():
            if line.strip():
                yield json.loads(line)


def response(case):
    """As `curl -i` prints it."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in (case.get("headers") or {}).items())
    return f"HTTP/1.1 {case.get('status') or 503} X\r\n{headers}\r\n{case.get('body') or ''}"


def seeds():
    for case in failures():
        yield "classify", json.dumps({field: case.get(field) for field in INPUTS})
        yield "waits", response(case)
        for text in filter(None, (case.get("body"), case.get("sse_event"))):
            yield "sse", text
            for codec in CODECS:
                yield codec, text
    for pattern in CONFIGS:
        for file in sorted(ROOT.glob(pattern)):
            yield "config", file.read_text(encoding="utf-8")
    yield "config", YAML
    yield "config", TOML


def main(folder):
    for target, text in seeds():
        data = text.encode("utf-8", "surrogatepass")
        file = pathlib.Path(folder, target, hashlib.sha256(data).hexdigest()[:16])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
