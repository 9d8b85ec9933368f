// Gives a real small model an OpenAI-shaped endpoint: POST /v1/chat/completions, streamed or plain, one answer at a
// time. Usage: node server.mjs MODEL.gguf [PORT]. Port 0, the default, takes a free one; standard output names it.

import {createServer} from "node:http";
import {getLlama, LlamaChatSession} from "node-llama-cpp";

const [modelPath, port = "0"] = process.argv.slice(2);
const DEFAULT_MAX_TOKENS = 256;
const REASONS = {maxTokens: "length"};

const llama = await getLlama({build: "never", gpu: false});
const model = await llama.loadModel({modelPath});
// More threads collapse when the cores are busy.
const context = await model.createContext({contextSize: 2048, threads: 1});
const sequence = context.getSequence();

// The context has one sequence, so answers are made one after another.
let turn = Promise.resolve();
function inTurn(work) {
    const done = turn.then(work);
    turn = done.catch(() => {});
    return done;
}

function historyItem({role, content}) {
    const text = textOf(content);
    if (role === "assistant") return {type: "model", response: [text]};
    return {type: role === "system" ? "system" : "user", text};
}

function textOf(content) {
    if (Array.isArray(content)) return content.map((part) => part.text ?? "").join("");
    return content ?? "";
}

async function generate(request, signal, onText) {
    await sequence.clearHistory();
    const before = sequence.tokenMeter.getState();
    const session = new LlamaChatSession({contextSequence: sequence, autoDisposeSequence: false});
    const used = () => sequence.tokenMeter.diff(before);
    try {
        session.setChatHistory(request.messages.slice(0, -1).map(historyItem));
        const {responseText, stopReason} = await session.promptWithMeta(textOf(request.messages.at(-1).content), {
            maxTokens: request.max_completion_tokens ?? request.max_tokens ?? DEFAULT_MAX_TOKENS,
            temperature: request.temperature ?? 0,
            signal,
            stopOnAbortSignal: true,
            onTextChunk: onText
        });
        if (signal.aborted) console.error(`aborted after ${used().usedOutputTokens} tokens`);
        return {text: responseText, finish: REASONS[stopReason] ?? "stop", usage: usageOf(used())};
    } finally {
        session.dispose();
    }
}

function usageOf({usedInputTokens, usedOutputTokens}) {
    return {
        prompt_tokens: usedInputTokens,
        completion_tokens: usedOutputTokens,
        total_tokens: usedInputTokens + usedOutputTokens
    };
}

function base(request, object) {
    return {id: `chatcmpl-${Date.now()}`, object, created: Math.floor(Date.now() / 1000), model: request.model};
}

async function answerPlain(request, response, signal) {
    const {text, finish, usage} = await generate(request, signal);
    const message = {role: "assistant", content: text};
    const choices = [{index: 0, message, finish_reason: finish}];
    sendJson(response, 200, {...base(request, "chat.completion"), choices, usage});
}

async function answerStreamed(request, response, signal) {
    const envelope = base(request, "chat.completion.chunk");
    const send = (choices, more) => response.write(`data: ${JSON.stringify({...envelope, choices, ...more})}\n\n`);
    const delta = (delta, finish_reason = null) => send([{index: 0, delta, finish_reason}]);

    response.writeHead(200, {"content-type": "text/event-stream", "cache-control": "no-cache"});
    delta({role: "assistant", content: ""});
    const {finish, usage} = await generate(request, signal, (content) => content && delta({content}));
    delta({}, finish);
    if (request.stream_options?.include_usage) send([], {usage});
    response.end("data: [DONE]\n\n");
}

function sendJson(response, status, body) {
    response.writeHead(status, {"content-type": "application/json"});
    response.end(JSON.stringify(body));
}

function refuse(response, status, message) {
    sendJson(response, status, {error: {message, type: "invalid_request_error"}});
}

async function read(request) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    return JSON.parse(Buffer.concat(pieces).toString());
}

async function handle(incoming, response) {
    if (incoming.method !== "POST" || incoming.url !== "/v1/chat/completions") {
        return refuse(response, 404, `no such endpoint: ${incoming.method} ${incoming.url}`);
    }
    const request = await read(incoming);
    if (!request.messages?.length) return refuse(response, 400, "messages: expected at least one");

    const gone = new AbortController();
    response.on("close", () => response.writableFinished || gone.abort());
    const answer = request.stream ? answerStreamed : answerPlain;
    await inTurn(() => gone.signal.aborted || answer(request, response, gone.signal));
}

const server = createServer((incoming, response) => {
    handle(incoming, response).catch((error) => {
        console.error(error);
        // A stream that has begun can only be broken off: an end would look like an answer.
        if (response.headersSent) response.destroy();
        else sendJson(response, 500, {error: {message: error.message, type: "server_error"}});
    });
});
server.listen(Number(port), "127.0.0.1", () => {
    console.log(`listening on http://127.0.0.1:${server.address().port}/v1`);
});
