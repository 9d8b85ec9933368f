"""Runs the real binary against aimock, an LLM mock that we did not write, and counts requests in aimock's own journal.
Every case runs on every wire, each with an aimock of its own: OpenAI's Chat Completions and Responses, Anthropic's
Messages, Google's Gemini.

Usage: tests/peers/install.sh && python3 tests/peers/aimock_check.py
"""

import json
import os
import pathlib
import sys
import tempfile
import urllib.request

from harness import APLOMB, HERE, Run, Server, case, expect, expect_equal, need_aplomb, run_cases

AIMOCK = HERE / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

# One attempt, then transport's 2 retries and the session's 3: allowances add.
PERSISTENT = 1 + 2 + 3
# aimock cuts a stream into pieces of 20 characters, after one chunk for the role (Anthropic: two events, for message
# and block).
LONG = "The keeper counts the ships, and the ships count on the keeper, night after night."
# The last chunk that aimock counts is lost with the connection, so this delivers the role and two pieces (Anthropic:
# one piece). Without a latency it would deliver nothing.
CUT = {"latency": 20, "truncateAfterChunks": 4}
DROPPED = {"chaos": {"disconnectRate": 1.0}}
# Without it, aimock counts no tokens on Anthropic's wire.
USAGE = {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}
# Each wire: how a config asks for it, where aimock serves it, and what the path of its requests has in it.
WIRES = {
    "Chat Completions": ({"provider": "openai_compatible"}, "/v1", "/chat/completions"),
    "Responses": ({"provider": "openai_compatible", "openai_api_style": "responses"}, "/v1", "/responses"),
    "Messages": ({"provider": "anthropic"}, "/v1", "/messages"),
    "Gemini": ({"provider": "gemini"}, "/v1beta", "GenerateContent"),
}


def when(text, **match):
    return {"match": {"userMessage": text, **match}}


def text(content):
    return {"response": {"content": content, **USAGE}}


def error(status, message, kind, code, **more):
    return {"response": {"status": status, "error": {"message": message, "type": kind, "code": code}, **more}}


CALL = {"response": {"toolCalls": [{"id": "call_1", "name": "calc", "arguments": {"expression": "6*7"}}], **USAGE}}
THROTTLE = error(429, "slow down", "requests", "rate_limit_exceeded", retryAfter=1)
BAD_KEY = error(401, "Incorrect API key provided", "invalid_request_error", "invalid_api_key")

# For one text, entries with a sequenceIndex come before the one without.
FIXTURES = [
    {**when("6*7", hasToolResult=False), **CALL},
    # Only a result that the tool really computed gets the answer.
    {**when("6*7", toolResultContains="42"), **text("The answer is 42.")},
    {**when("throttled", sequenceIndex=0), **THROTTLE},
    {**when("throttled"), **text("Rested.")},
    {**when("dropped always"), **text("unseen"), **DROPPED},
    {**when("dropped once", sequenceIndex=0), **text("unseen"), **DROPPED},
    {**when("dropped once"), **text("Back again.")},
    {**when("broken always"), **text("unseen"), "chaos": {"dropRate": 1.0}},
    {**when("cut always"), **text(LONG), **CUT},
    {**when("cut once", sequenceIndex=0), **text(LONG), **CUT},
    {**when("cut once"), **text(LONG)},
    {**when("malformed always"), **text("unseen"), "chaos": {"malformedRate": 1.0}},
    {**when("locked out"), **BAD_KEY},
]


def agent_config(wire, api_base):
    return {
        "version": "1.0",
        "agents": [
            {
                "id": "assistant",
                "pattern": {"type": "react"},
                "llm": {
                    **wire,
                    "model": "gpt-4o-mini",
                    "api_base": api_base,
                    "api_key_env": "PEERS_API_KEY",
                    "stream": "always",
                    "retry": {"max_attempts": 3, "initial_backoff_ms": 1, "max_backoff_ms": 2},
                },
                "retry": {"session": {"enabled": True, "max_retries": 3, "base_delay_ms": 1}},
                "tools": [{"id": "calc", "type": "calc"}],
            }
        ],
    }


class Bench:
    """The binary with a config that points at aimock, and aimock's journal."""

    def __init__(self, wire, url, folder):
        self.wire, self.url, self.folder = wire, url, folder
        provider, base, _ = WIRES[wire]
        self.config = folder / "agent.json"
        self.config.write_text(json.dumps(agent_config(provider, f"{url}{base}"), indent=2))

    def run(self, prompt, form):
        env = {**os.environ, "PEERS_API_KEY": "peers-key", "APLOMB_DATA_DIR": str(self.folder / "data")}
        return Run([APLOMB, "run", str(self.config), "--input", prompt, "--format", form], env)

    def requests(self, prompt):
        """The requests that a prompt has caused, oldest first, as aimock recorded them."""
        path = WIRES[self.wire][2]
        with urllib.request.urlopen(f"{self.url}/__aimock/journal", timeout=10) as answer:
            entries = [entry for entry in json.load(answer) if path in entry["path"]]
        return [entry for entry in entries if prompt in json.dumps(entry["body"])]

    def failing_run(self, prompt, requests, code):
        """Runs a prompt that must fail: loudly, without an answer, with every request accounted for."""
        run = self.run(prompt, "json")
        expect_equal(run.code, 3, "exit code")
        result = json.loads(run.stdout)
        expect_equal(result["stop_reason"], "failed", "stop_reason")
        expect_equal(result["final_output"], None, "final_output")
        details = result["error_details"]
        expect_equal(details["code"], code, "error_details.code")
        expect(code in run.stderr, f"standard error does not name {code}")
        expect_equal(len(self.requests(prompt)), requests, "requests")
        expect_equal(len(details["attempts"]), requests, "attempts in the error")
        return details


@case
def a_streamed_run_with_a_tool_call_answers_on_stdout(bench):
    prompt = "In words, what is 6*7?"
    run = bench.run(prompt, "text")
    expect_equal(run.code, 0, "exit code")
    expect_equal(run.stdout.strip(), "The answer is 42.", "stdout")
    requests = bench.requests(prompt)
    expect_equal(len(requests), 2, "requests")
    for request in requests:
        asked = request["body"].get("stream") or "stream" in request["path"]
        expect(asked, "a request did not ask for a stream")


@case
def the_result_object_counts_calls_tools_and_tokens(bench):
    run = bench.run("As an object, what is 6*7?", "json")
    expect_equal(run.code, 0, "exit code")
    result = json.loads(run.stdout)
    expect_equal(result["stop_reason"], "completed", "stop_reason")
    expect_equal(result["final_output"], "The answer is 42.", "final_output")
    usage = result["usage"]
    expect_equal((usage["llm_calls"], usage["tool_calls"]), (2, 1), "calls of model and tool")
    expect(usage["input_tokens"] > 0 and usage["output_tokens"] > 0, f"tokens are missing: {usage}")


@case
def a_429_with_retry_after_costs_two_requests_a_second_apart(bench):
    run = bench.run("throttled", "events")
    expect_equal(run.code, 0, "exit code")
    requests = bench.requests("throttled")
    expect_equal(len(requests), 2, "requests")
    apart = requests[1]["timestamp"] - requests[0]["timestamp"]
    expect(apart >= 1000, f"asked to wait 1000 ms, sent again after {apart} ms")
    events = [json.loads(line) for line in run.stdout.splitlines()]
    decisions = [event["payload"] for event in events if event["name"] == "retry.decided"]
    expect_equal(len(decisions), 1, "retry.decided events")
    expect(decisions[0]["delay_ms"] >= 1000, f"the event says {decisions[0]['delay_ms']} ms")
    expect_equal(decisions[0]["reason"], "rate_limit", "reason of the retry")


@case
def a_connection_dropped_every_time_costs_six_requests(bench):
    details = bench.failing_run("dropped always", PERSISTENT, "llm.connection")
    expect_equal(details["retryable"], True, "retryable")


@case
def a_connection_dropped_once_costs_one_more_request(bench):
    run = bench.run("dropped once", "text")
    expect_equal(run.code, 0, "exit code")
    expect_equal(run.stdout.strip(), "Back again.", "stdout")
    expect_equal(len(bench.requests("dropped once")), 2, "requests")


@case
def a_500_every_time_costs_six_requests(bench):
    details = bench.failing_run("broken always", PERSISTENT, "llm.connection")
    expect_equal(details["context"]["status"], 500, "status")


@case
def a_stream_cut_every_time_is_never_a_success(bench):
    bench.failing_run("cut always", PERSISTENT, "llm.connection")


@case
def a_stream_cut_once_gives_its_text_once(bench):
    run = bench.run("cut once", "text")
    expect_equal(run.code, 0, "exit code")
    expect_equal(run.stdout.strip(), LONG, "stdout")
    expect_equal(len(bench.requests("cut once")), 2, "requests")


@case
def a_malformed_200_is_never_a_success(bench):
    run = bench.run("malformed always", "json")
    expect_equal(run.code, 3, "exit code")
    result = json.loads(run.stdout)
    expect_equal((result["stop_reason"], result["final_output"]), ("failed", None), "outcome")
    details = result["error_details"]
    expect(details["code"].startswith("llm."), f"code is {details['code']}")
    expect(details["code"] in run.stderr, f"standard error does not name {details['code']}")
    expect_equal(details["context"]["reason"], "malformed_response", "reason")
    expect_equal(len(details["attempts"]), len(bench.requests("malformed always")), "attempts in the error")


@case
def a_refused_key_costs_one_request(bench):
    details = bench.failing_run("locked out", 1, "llm.response")
    expect_equal(details["retryable"], False, "retryable")
    expect_equal(details["context"]["status"], 401, "status")
    expect("peers-key" not in json.dumps(details), "the key is in the error")


def check(wire):
    with tempfile.TemporaryDirectory(prefix="aplomb-aimock-") as name:
        folder = pathlib.Path(name)
        fixtures = folder / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
        command = ["node", str(AIMOCK), "--port", "0", "--fixtures", str(fixtures), "--validate-on-load"]
        with Server(command, r"listening on (http://\S+)") as aimock:
            print(f"{wire}:", flush=True)
            return run_cases(Bench(wire, aimock.match[1], folder))


def main():
    need_aplomb()
    return max([check(wire) for wire in WIRES])


if __name__ == "__main__":
    sys.exit(main())
