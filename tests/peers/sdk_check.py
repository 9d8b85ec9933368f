"""Judges faultlab, our fault server, by the official SDKs of OpenAI, Anthropic and Google: what we call a good answer
the SDK must read, and what we call a fault the SDK must meet. Where a case's name says no more, it is OpenAI's SDK and
Chat Completions.

Usage: tests/peers/install.sh && .peers/venv/bin/python tests/peers/sdk_check.py
"""

import contextlib
import json
import pathlib
import sys
import tempfile
import threading
import urllib.request

import anthropic
import httpx2
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from harness import APLOMB, Server, case, expect, expect_equal, need_aplomb, run_cases

READY = r"listening on (http://\S+) \(control (http://[^\s)]+)\)"
CAPTURES = {"expression": "([0-9][-+*/ ().0-9]*)"}
SENTENCE = "Let me think about that for a while."
ANSWER = {"reply": {"message": {"text": SENTENCE}}}
CALL_CALC = {"reply": {"message": {"tool_calls": [{"name": "calc", "arguments": {"expression": "{{expression}}"}}]}}}
GIVE_RESULT = {"reply": {"message": {"text": "The answer is {{tool_result}}."}}}
TWO_CALLS = {
    "reply": {
        "message": {
            "tool_calls": [
                {"name": "calc", "arguments": {"expression": "6*7"}},
                {"name": "calc", "arguments": {"expression": "2+2"}},
            ]
        }
    }
}
THROTTLE = {
    "reply": {
        "http": {
            "status": 429,
            "headers": {"retry-after": "1"},
            "body": {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}},
        }
    }
}
CALC = {
    "type": "function",
    "function": {
        "name": "calc",
        "description": "Evaluates an arithmetic expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}
THINK_AND_CALL = {
    "reply": {
        "message": {
            "thinking": "I should calculate.",
            "text": "Let me see.",
            "tool_calls": [{"name": "calc", "arguments": {"expression": "{{expression}}"}}],
        }
    }
}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
CLAUDE_CALC = {
    "name": "calc",
    "description": CALC["function"]["description"],
    "input_schema": CALC["function"]["parameters"],
}
RESPONSES_CALC = {"type": "function", "strict": False, **CALC["function"]}
GEMINI_CALC = {
    "name": "calc",
    "description": CALC["function"]["description"],
    "parameters_json_schema": CALC["function"]["parameters"],
}
# A model of this generation must have its signatures back.
GEMINI_MODEL = "gemini-3-pro-preview"
EXHAUSTED = {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}
# Long enough for a busy machine, short enough to wait for where silence is the fault.
PATIENCE_SECONDS = 1.5


def faulty(fault):
    return {**ANSWER, "fault": fault}


class Lab:
    """A faultlab that plays `steps`, and the SDKs pointed at it."""

    def __init__(self, url, control):
        self.control = control
        self.client = openai.OpenAI(base_url=url, api_key="peers-key", max_retries=0, timeout=PATIENCE_SECONDS)
        # This SDK adds the /v1 itself.
        self.claude = anthropic.Anthropic(
            base_url=url.removesuffix("/v1"), api_key="peers-key", max_retries=0, timeout=PATIENCE_SECONDS
        )
        # So does this one, with the version that it is told.
        self.gemini = genai.Client(
            api_key="peers-key",
            http_options=genai_types.HttpOptions(
                base_url=url.removesuffix("/v1"), api_version="v1beta", timeout=int(PATIENCE_SECONDS * 1000)
            ),
        )

    def ask(self, messages="hi", **options):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=[CALC], **options)

    def stream(self, messages="hi", **options):
        """The chunks of a streamed answer, as they come."""
        return self.ask(messages, stream=True, **options)

    def ask_claude(self, messages="hi"):
        return self.claude.messages.create(**claude_request(messages))

    def stream_claude(self, messages="hi", seen=None):
        """The message that the SDK makes of a streamed answer; `seen` gets its events."""
        with self.claude.messages.stream(**claude_request(messages)) as stream:
            for event in stream:
                if seen is not None:
                    seen.append(event)
            return stream.get_final_message()

    def respond(self, items="hi", client=None, **options):
        client = client or self.client
        return client.responses.create(
            model="gpt-5",
            input=items,
            tools=[RESPONSES_CALC],
            store=False,
            include=["reasoning.encrypted_content"],
            **options,
        )

    def stream_response(self, items="hi", seen=None):
        """The response that a streamed answer ends with; `seen` gets its events."""
        final = None
        for event in self.respond(items, stream=True):
            if seen is not None:
                seen.append(event)
            final = getattr(event, "response", final)
        return final

    def generate(self, contents="hi", **config):
        config = gemini_config(**config)
        return self.gemini.models.generate_content(model=GEMINI_MODEL, contents=contents, config=config)

    def stream_content(self, contents="hi", **config):
        """The chunks of a streamed answer, as they come."""
        config = gemini_config(**config)
        return self.gemini.models.generate_content_stream(model=GEMINI_MODEL, contents=contents, config=config)

    def requests(self):
        """Faultlab's own log of what reached it."""
        with urllib.request.urlopen(f"{self.control}/requests", timeout=10) as answer:
            log = json.load(answer)
        return log["requests"] if isinstance(log, dict) else log


@contextlib.contextmanager
def lab(*steps):
    script = {"captures": CAPTURES, "steps": list(steps), "at_end": "stop"}
    with tempfile.TemporaryDirectory(prefix="aplomb-faultlab-") as folder:
        file = pathlib.Path(folder) / "script.json"
        file.write_text(json.dumps(script))
        with Server([APLOMB, "faultlab", "--script", str(file), "--port", "0"], READY) as server:
            yield Lab(server.match[1], server.match[2])


def collect(chunks):
    """Folds chunks the way an SDK user does: text, calls by index, the last finish reason, usage."""
    text, calls, finish, usage = "", {}, None, None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.id or ""
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
    return text, [calls[index] for index in sorted(calls)], finish, usage


def claude_request(messages):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return {"model": "faultlab", "max_tokens": 1024, "messages": messages, "tools": [CLAUDE_CALC]}


def gemini_config(**config):
    return genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=[GEMINI_CALC])],
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
        **config,
    )


def raised(function, *errors):
    """The error, of one of the given kinds, that a function must raise."""
    try:
        result = function()
    except errors as error:
        return error
    raise AssertionError(f"expected {' or '.join(kind.__name__ for kind in errors)}, got {result!r}")


def with_results(question, calls, results):
    """The conversation after the tools have run."""
    return [
        {"role": "user", "content": question},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in calls
            ],
        },
        *(
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(calls, results, strict=True)
        ),
    ]


def plain_calls(completion):
    return [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in completion.choices[0].message.tool_calls
    ]


def expect_usage(usage):
    expect(usage is not None, "usage is missing")
    expect(usage.prompt_tokens > 0 and usage.completion_tokens > 0, f"usage is empty: {usage}")
    expect_equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "total_tokens")


@case
def a_plain_tool_call_makes_the_round_trip():
    question = "What is 6*7?"
    with lab(CALL_CALC, GIVE_RESULT) as faultlab:
        first = faultlab.ask(question)
        expect_equal(first.choices[0].finish_reason, "tool_calls", "finish_reason")
        calls = plain_calls(first)
        expect_equal([call["name"] for call in calls], ["calc"], "tools called")
        expect_equal(json.loads(calls[0]["arguments"]), {"expression": "6*7"}, "arguments")
        last = faultlab.ask(with_results(question, calls, ["42"]))
        expect_equal(last.choices[0].message.content, "The answer is 42.", "answer")
        expect_equal(last.choices[0].finish_reason, "stop", "finish_reason")
        expect_usage(last.usage)
        expect_equal(len(faultlab.requests()), 2, "requests in the log")


@case
def a_streamed_tool_call_makes_the_round_trip():
    question = "What is 6*7?"
    with lab(CALL_CALC, GIVE_RESULT) as faultlab:
        _, calls, finish, _ = collect(faultlab.stream(question))
        expect_equal(finish, "tool_calls", "finish_reason")
        expect_equal([call["name"] for call in calls], ["calc"], "tools called")
        expect_equal(json.loads(calls[0]["arguments"]), {"expression": "6*7"}, "arguments")
        text, calls, finish, _ = collect(faultlab.stream(with_results(question, calls, ["42"])))
        expect_equal((text, calls, finish), ("The answer is 42.", [], "stop"), "answer")
        expect_equal(len(faultlab.requests()), 2, "requests in the log")


@case
def parallel_tool_calls_arrive_apart_plain_and_streamed():
    with lab(TWO_CALLS, TWO_CALLS, ANSWER) as faultlab:
        plain = plain_calls(faultlab.ask())
        _, streamed, finish, _ = collect(faultlab.stream())
        for calls in (plain, streamed):
            expressions = [json.loads(call["arguments"])["expression"] for call in calls]
            expect_equal(expressions, ["6*7", "2+2"], "expressions")
            expect(len({call["id"] for call in calls}) == 2, f"the ids are not two: {calls}")
        expect_equal(finish, "tool_calls", "finish_reason")
        text, _, _, _ = collect(faultlab.stream(with_results("hi", streamed, ["42", "4"])))
        expect_equal(text, SENTENCE, "answer to two results")


@case
def a_stream_reports_usage_when_asked_to():
    with lab(ANSWER, ANSWER) as faultlab:
        text, _, finish, usage = collect(faultlab.stream(stream_options={"include_usage": True}))
        expect_equal((text, finish), (SENTENCE, "stop"), "answer")
        expect_usage(usage)
        _, _, _, usage = collect(faultlab.stream())
        expect_equal(usage, None, "usage that nobody asked for")


@case
def a_429_is_a_rate_limit_error_with_its_header():
    with lab(THROTTLE) as faultlab:
        error = raised(faultlab.ask, openai.RateLimitError)
        expect_equal(error.status_code, 429, "status")
        expect_equal(error.response.headers.get("retry-after"), "1", "retry-after")
        expect_equal(error.code, "rate_limit_exceeded", "code")
        expect_equal(len(faultlab.requests()), 1, "requests in the log")


@case
def an_error_event_in_a_stream_is_an_api_error():
    body = {"error": {"message": "overloaded", "type": "server_error"}}
    with lab(faulty({"error_event": {"after_events": 2, "body": body}})) as faultlab:
        error = raised(lambda: collect(faultlab.stream()), openai.APIError)
        expect("overloaded" in error.message, f"message: {error.message}")


@case
def a_cut_stream_raises_after_what_it_delivered():
    for by in ("reset", "fin"):
        with lab(faulty({"cut": {"after_events": 3, "by": by}})) as faultlab:
            seen = []
            raised(lambda: collect(remember(faultlab.stream(), seen)), openai.APIConnectionError, httpx2.TransportError)
            # A reset may overtake what was sent just before it.
            expect(len(seen) == 3 or (by == "reset" and len(seen) < 3), f"{len(seen)} chunks before the {by}")


@case
def a_connection_lost_before_the_headers_is_a_connection_error():
    for fault in ("reset_before_headers", "close_before_headers"):
        with lab(faulty(fault)) as faultlab:
            error = raised(faultlab.stream, openai.APIConnectionError)
            expect(not isinstance(error, openai.APITimeoutError), f"{fault} was a time-out")


@case
def silence_is_a_time_out():
    with lab(faulty("silence")) as faultlab:
        raised(faultlab.stream, openai.APITimeoutError)


@case
def a_stalled_stream_is_a_time_out_after_what_it_delivered():
    with lab(faulty({"stall": {"after_events": 2}})) as faultlab:
        seen = []
        raised(lambda: collect(remember(faultlab.stream(), seen)), openai.APITimeoutError, httpx2.TimeoutException)
        expect_equal(len(seen), 2, "chunks before the stall")


@case
def pings_are_no_content_and_hold_off_the_sdks_clock():
    with lab(faulty({"pings": {"after_events": 1, "every_ms": 50}})) as faultlab:
        seen = []
        reader = threading.Thread(target=read_until_it_breaks, args=(faultlab.stream(), seen), daemon=True)
        reader.start()
        reader.join(2 * PATIENCE_SECONDS)
        expect(reader.is_alive(), "the stream ended")
        expect_equal(len(seen), 1, "chunks")


@case
def the_sdk_takes_a_stream_without_its_end_for_an_answer():
    """The reason why Aplomb checks for the terminal event itself."""
    with lab(faulty({"end_without_terminal": {"done": True}})) as faultlab:
        _, _, finish, _ = collect(faultlab.stream())
        expect_equal(finish, None, "finish_reason")


@case
def the_anthropic_sdk_makes_the_round_trip_of_a_plain_tool_call_and_its_signed_thinking():
    with lab(THINK_AND_CALL, GIVE_RESULT) as faultlab:
        expect_round_trip(faultlab, faultlab.ask_claude)


@case
def the_anthropic_sdk_makes_the_round_trip_of_a_streamed_tool_call_and_its_signed_thinking():
    with lab(THINK_AND_CALL, GIVE_RESULT) as faultlab:
        expect_round_trip(faultlab, faultlab.stream_claude)


def expect_round_trip(faultlab, ask):
    user = {"role": "user", "content": "What is 6*7?"}
    first = ask([user])
    expect_equal(first.stop_reason, "tool_use", "stop_reason")
    expect_equal([block.type for block in first.content], ["thinking", "text", "tool_use"], "blocks")
    thinking, text, call = first.content
    expect_equal((thinking.thinking, text.text), ("I should calculate.", "Let me see."), "thinking and text")
    expect(thinking.signature, "the thinking has no signature")
    expect_equal((call.name, call.input), ("calc", {"expression": "6*7"}), "call")
    expect(first.usage.input_tokens > 0 and first.usage.output_tokens > 0, f"usage is empty: {first.usage}")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "42"}
    last = ask([user, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}])
    expect_equal([block.text for block in last.content], ["The answer is 42."], "answer")
    expect_equal(last.stop_reason, "end_turn", "stop_reason")
    requests = faultlab.requests()
    expect_equal(len(requests), 2, "requests in the log")
    sent_back = requests[1]["body"]["messages"][1]["content"][0]
    expect_equal(sent_back.get("signature"), thinking.signature, "signature sent back")


@case
def a_529_is_an_api_error_of_the_anthropic_sdk_with_the_request_id():
    with lab({"reply": {"http": {"status": 529, "body": OVERLOADED}}}) as faultlab:
        error = raised(faultlab.ask_claude, anthropic.APIStatusError)
        expect_equal(error.status_code, 529, "status")
        expect_equal(error.request_id, "req_faultlab_1", "request id")
        expect_equal(error.body, OVERLOADED, "body")
        expect_equal(len(faultlab.requests()), 1, "requests in the log")


@case
def an_error_event_in_a_stream_is_an_api_error_of_the_anthropic_sdk():
    with lab(faulty({"error_event": {"after_events": 4, "body": OVERLOADED}})) as faultlab:
        error = raised(faultlab.stream_claude, anthropic.APIError)
        expect("overloaded" in str(error.body).lower(), f"body: {error.body}")


@case
def a_cut_stream_raises_in_the_anthropic_sdk_too():
    for by in ("reset", "fin"):
        with lab(faulty({"cut": {"after_events": 5, "by": by}})) as faultlab:
            seen = []
            raised(
                lambda: faultlab.stream_claude(seen=seen), anthropic.APIConnectionError, httpx2.TransportError
            )
            expect(seen or by == "reset", f"nothing before the {by}")
            expect("message_stop" not in [event.type for event in seen], "the message ended")


@case
def a_plain_response_is_read_with_its_usage():
    with lab(ANSWER) as faultlab:
        response = faultlab.respond()
        expect_valid(response)
        expect_equal((response.status, response.output_text), ("completed", SENTENCE), "answer")
        expect_equal(response._request_id, "req_faultlab_1", "request id")
        expect_response_usage(response.usage)


@case
def a_streamed_response_is_the_events_that_its_sdk_knows():
    with lab(THINK_AND_CALL) as faultlab:
        seen = []
        response = faultlab.stream_response(seen=seen)
        expect_equal([event.sequence_number for event in seen], list(range(len(seen))), "sequence numbers")
        # The SDK reads whatever comes, an unknown type as another one: its types say more when they are asked.
        for event in seen:
            expect_valid(event)
        deltas = [event.delta for event in seen if event.type == "response.output_text.delta"]
        expect_equal("".join(deltas), "Let me see.", "text")
        thoughts = [event.delta for event in seen if event.type == "response.reasoning_summary_text.delta"]
        expect_equal("".join(thoughts), "I should calculate.", "thinking")
        expect_equal(response.status, "completed", "status")
        expect_response_usage(response.usage)


@case
def the_helper_that_assembles_a_streamed_response_agrees_with_its_end():
    with lab(THINK_AND_CALL) as faultlab:
        with faultlab.client.responses.stream(model="gpt-5", input="What is 6*7?") as stream:
            for _ in stream:
                pass
            response = stream.get_final_response()
        expect_equal([item.type for item in response.output], ["reasoning", "message", "function_call"], "items")
        expect_equal(response.output_text, "Let me see.", "text")


@case
def a_plain_response_that_calls_makes_the_round_trip_with_its_reasoning():
    with lab(THINK_AND_CALL, GIVE_RESULT) as faultlab:
        expect_response_round_trip(faultlab, faultlab.respond)


@case
def a_streamed_response_that_calls_makes_the_round_trip_with_its_reasoning():
    with lab(THINK_AND_CALL, GIVE_RESULT) as faultlab:
        expect_response_round_trip(faultlab, faultlab.stream_response)


def expect_response_round_trip(faultlab, ask):
    user = {"role": "user", "content": "What is 6*7?"}
    first = ask([user])
    expect_equal([item.type for item in first.output], ["reasoning", "message", "function_call"], "items")
    reasoning, _, call = first.output
    expect_equal(reasoning.summary[0].text, "I should calculate.", "thinking")
    expect(reasoning.encrypted_content, "the reasoning has no encrypted content")
    expect_equal((call.name, json.loads(call.arguments)), ("calc", {"expression": "6*7"}), "call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    # As the SDK's documentation does it: the output is the next input.
    output = [item.model_dump(exclude_none=True) for item in first.output]
    last = ask([user, *output, result])
    expect_equal(last.output_text, "The answer is 42.", "answer")
    expect_equal(len(faultlab.requests()), 2, "requests in the log")
    error = raised(lambda: ask([user, output[-1], result]), openai.BadRequestError)
    expect("without its required 'reasoning' item" in error.message, f"message: {error.message}")


@case
def a_response_that_ran_out_of_tokens_is_incomplete():
    step = {"reply": {"message": {"text": SENTENCE, "finish_reason": "length"}}}
    with lab(step, step) as faultlab:
        for response in (faultlab.respond(), faultlab.stream_response()):
            expect_equal(response.status, "incomplete", "status")
            expect_equal(response.incomplete_details.reason, "max_output_tokens", "reason")


@case
def a_429_of_responses_is_retried_when_its_header_says():
    with lab(THROTTLE, ANSWER) as faultlab:
        response = faultlab.respond(client=faultlab.client.with_options(max_retries=1))
        expect_equal(response.output_text, SENTENCE, "answer")
        first, second = faultlab.requests()
        # A second, less what the log's clock rounds off. Without the header the SDK waits half a second at most.
        waited = second["at_ms"] - first["at_ms"]
        expect(waited >= 990, f"the SDK waited {waited} ms")


@case
def an_error_in_a_streamed_response_is_an_event_of_its_own():
    """This SDK raises nothing for either: a client has to look at the events."""
    flat = {"type": "error", "code": "server_error", "message": "oh", "param": None, "sequence_number": 2}
    with lab(faulty({"error_event": {"after_events": 2, "body": flat}})) as faultlab:
        seen = []
        faultlab.stream_response(seen=seen)
        expect_equal((seen[-1].type, seen[-1].code, seen[-1].message), ("error", "server_error", "oh"), "last event")
    failed = {
        "type": "response.failed",
        "sequence_number": 2,
        "response": {"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "oh"}},
    }
    with lab(faulty({"error_event": {"after_events": 2, "body": failed}})) as faultlab:
        response = faultlab.stream_response()
        expect_equal((response.status, response.error.message), ("failed", "oh"), "last event")


@case
def a_cut_streamed_response_raises_after_what_it_delivered():
    for by in ("reset", "fin"):
        with lab(faulty({"cut": {"after_events": 6, "by": by}})) as faultlab:
            seen = []
            raised(
                lambda: faultlab.stream_response(seen=seen), openai.APIConnectionError, httpx2.TransportError
            )
            expect(len(seen) == 6 or (by == "reset" and len(seen) < 6), f"{len(seen)} events before the {by}")


def expect_valid(model):
    """What the SDK read is what its types, which are generated from OpenAI's API description, allow."""
    type(model).model_validate(model.model_dump(exclude_unset=True))


def expect_response_usage(usage):
    expect(usage is not None, "usage is missing")
    expect(usage.input_tokens > 0 and usage.output_tokens > 0, f"usage is empty: {usage}")
    expect_equal(usage.total_tokens, usage.input_tokens + usage.output_tokens, "total_tokens")
    expect(usage.output_tokens_details.reasoning_tokens <= usage.output_tokens, f"reasoning is more than all: {usage}")


@case
def the_google_sdk_reads_a_plain_answer_with_its_usage():
    with lab(ANSWER) as faultlab:
        answer = faultlab.generate()
        expect_equal(answer.text, SENTENCE, "answer")
        expect_equal(answer.candidates[0].finish_reason, genai_types.FinishReason.STOP, "finish reason")
        expect_equal((answer.model_version, answer.response_id), (GEMINI_MODEL, "faultlab_1"), "model and id")
        expect_google_usage(answer.usage_metadata)


@case
def the_google_sdk_reads_a_streamed_answer_with_its_usage():
    with lab(ANSWER) as faultlab:
        chunks = list(faultlab.stream_content())
        expect_equal("".join(chunk.text or "" for chunk in chunks), SENTENCE, "answer")
        expect(len(chunks) > 5, f"{len(chunks)} chunks")
        reasons = [chunk.candidates[0].finish_reason for chunk in chunks]
        expect_equal(reasons, [None] * (len(chunks) - 1) + [genai_types.FinishReason.STOP], "finish reasons")
        expect_google_usage(chunks[-1].usage_metadata)


@case
def the_google_sdk_makes_the_round_trip_of_a_plain_call_and_its_signature():
    with lab(THINK_AND_CALL, GIVE_RESULT) as faultlab:
        expect_google_round_trip(faultlab, lambda contents: faultlab.generate(contents).candidates[0].content.parts)


@case
def the_google_sdk_makes_the_round_trip_of_a_streamed_call_and_its_signature():
    def ask(contents):
        chunks = faultlab.stream_content(contents)
        return [part for chunk in chunks for part in chunk.candidates[0].content.parts]

    with lab(THINK_AND_CALL, GIVE_RESULT) as faultlab:
        expect_google_round_trip(faultlab, ask)


def expect_google_round_trip(faultlab, ask):
    user = genai_types.Content(role="user", parts=[genai_types.Part(text="What is 6*7?")])
    parts = ask([user])
    expect_equal("".join(part.text or "" for part in parts if part.thought), "I should calculate.", "thinking")
    expect_equal("".join(part.text or "" for part in parts if not part.thought), "Let me see.", "text")
    calls = [part for part in parts if part.function_call]
    named = [(part.function_call.name, part.function_call.args) for part in calls]
    expect_equal(named, [("calc", {"expression": "6*7"})], "calls")
    expect(calls[0].thought_signature, "the call is not signed")
    model = genai_types.Content(role="model", parts=parts)
    response = genai_types.Part.from_function_response(name="calc", response={"result": "42"})
    result = genai_types.Content(role="user", parts=[response])
    last = ask([user, model, result])
    expect_equal("".join(part.text or "" for part in last), "The answer is 42.", "answer")
    expect_equal(len(faultlab.requests()), 2, "requests in the log")
    calls[0].thought_signature = None
    unsigned = genai_types.Content(role="model", parts=calls)
    error = raised(lambda: ask([user, unsigned, result]), genai_errors.ClientError)
    expect_equal((error.code, error.status), (400, "INVALID_ARGUMENT"), "error")
    expect("missing a thought_signature" in error.message, f"message: {error.message}")


@case
def the_google_sdk_keeps_a_chat_that_calls_by_itself():
    with lab(THINK_AND_CALL, GIVE_RESULT, ANSWER) as faultlab:
        chat = faultlab.gemini.chats.create(model=GEMINI_MODEL, config=gemini_config())
        call = chat.send_message("What is 6*7?").function_calls[0]
        part = genai_types.Part.from_function_response(name=call.name, response={"result": "42"})
        expect_equal(chat.send_message(part).text, "The answer is 42.", "answer")
        expect_equal(chat.send_message("Thanks.").text, SENTENCE, "answer after that")


@case
def a_429_is_a_client_error_of_the_google_sdk_and_retried_when_it_is_told_to():
    throttle = {"reply": {"http": {"status": 429, "headers": {"retry-after": "1"}, "body": EXHAUSTED}}}
    with lab(throttle, throttle, ANSWER) as faultlab:
        error = raised(faultlab.generate, genai_errors.ClientError)
        expect_equal((error.code, error.status, error.message), (429, "RESOURCE_EXHAUSTED", "slow down"), "error")
        expect_equal(error.response.headers.get("retry-after"), "1", "retry-after")
        expect_equal(len(faultlab.requests()), 1, "requests in the log")
        retry = genai_types.HttpRetryOptions(attempts=2, initial_delay=0.01, max_delay=0.01, jitter=0.0)
        answer = faultlab.generate(http_options=genai_types.HttpOptions(retry_options=retry))
        expect_equal(answer.text, SENTENCE, "answer")
        expect_equal(len(faultlab.requests()), 3, "requests in the log")


@case
def an_error_in_a_stream_is_a_server_error_of_the_google_sdk():
    body = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}
    with lab(faulty({"error_event": {"after_events": 2, "body": body}})) as faultlab:
        seen = []
        error = raised(lambda: list(remember(faultlab.stream_content(), seen)), genai_errors.ServerError)
        expect_equal((error.code, error.status, error.message), (503, "UNAVAILABLE", "overloaded"), "error")
        expect_equal(len(seen), 2, "chunks before the error")


@case
def a_cut_stream_raises_in_the_google_sdk_too():
    for by in ("reset", "fin"):
        with lab(faulty({"cut": {"after_events": 3, "by": by}})) as faultlab:
            seen = []
            raised(lambda: list(remember(faultlab.stream_content(), seen)), httpx2.TransportError)
            expect(len(seen) == 3 or (by == "reset" and len(seen) < 3), f"{len(seen)} chunks before the {by}")


@case
def the_google_sdk_takes_a_comment_for_a_broken_answer():
    """The reason why a ping that any other client overlooks is not sent unless a script says so."""
    with lab(faulty({"pings": {"after_events": 1, "every_ms": 50}})) as faultlab:
        seen = []
        error = raised(lambda: list(remember(faultlab.stream_content(), seen)), genai_errors.UnknownApiResponseError)
        expect(": ping" in str(error), f"error: {error}")
        expect_equal(len(seen), 1, "chunks")


@case
def the_google_sdk_takes_a_stream_without_its_end_for_an_answer_too():
    with lab(faulty({"end_without_terminal": {"done": False}})) as faultlab:
        chunks = list(faultlab.stream_content())
        expect_equal("".join(chunk.text for chunk in chunks), SENTENCE, "answer")
        expect_equal(chunks[-1].candidates[0].finish_reason, None, "finish reason")


def expect_google_usage(usage):
    expect(usage is not None, "usage is missing")
    prompt, answer = usage.prompt_token_count, usage.candidates_token_count
    expect(prompt > 0 and answer > 0, f"usage is empty: {usage}")
    expect_equal(usage.total_token_count, prompt + answer + (usage.thoughts_token_count or 0), "total tokens")


def remember(chunks, seen):
    for chunk in chunks:
        seen.append(chunk)
        yield chunk


def read_until_it_breaks(chunks, seen):
    with contextlib.suppress(openai.APIError, httpx2.TransportError):
        collect(remember(chunks, seen))


def main():
    need_aplomb()
    return run_cases()


if __name__ == "__main__":
    sys.exit(main())
