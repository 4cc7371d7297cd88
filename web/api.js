/* The server: requests, streams of events, errors in words. */

let key = "";
try {
    key = sessionStorage.getItem("sluice.key") || localStorage.getItem("sluice.key") || "";
} catch {
    // no storage: the key is asked for again
}

export function setKey(value, remember) {
    key = value;
    try {
        sessionStorage.setItem("sluice.key", value);
        if (remember)
            localStorage.setItem("sluice.key", value);
        else
            localStorage.removeItem("sluice.key");
    } catch {
        // then it lasts as long as the page
    }
}

export const hasKey = () => key !== "";

/* What went wrong: kind is "network", "stalled", "key", "busy", "context", "large", "request" or "server". */
export class ApiError extends Error {
    constructor(kind, message, more = {}) {
        super(message);
        this.kind = kind;
        Object.assign(this, more);
    }
}

/* What a person can do about it. */
export function advice(error) {
    switch (error.kind) {
    case "network":
        return "The server could not be reached. Is `sluice serve` still running? The page keeps trying.";
    case "stalled":
        return "The connection went silent. Try again: what the server has already computed of the prompt is kept.";
    case "key":
        return "The server asks for a key, and this one is missing or wrong.";
    case "busy":
        return "The server answers one request at a time and its queue is full.";
    case "context":
        return "The conversation is longer than the context. Start a new one, edit an earlier message to go on from there, or start the server with a larger --ctx.";
    case "large":
        return "The request is larger than the server accepts. Shorten the message or start a new conversation.";
    case "request":
        return "The server does not accept this request. Check the settings, above all tools and stop strings.";
    default:
        return "Something went wrong inside the server; its log has the details. Trying again often helps.";
    }
}

function kindOf(status, code) {
    if (status === 401 || status === 403)
        return "key";
    if (code === "context_length_exceeded" || code === "context_length")
        return "context";
    if (status === 413)
        return "large";
    if (status === 429 || status === 503)
        return "busy";
    return status >= 500 ? "server" : "request";
}

export function errorOf(status, body, retryAfter) {
    const e = (body && body.error) || {};
    const message = typeof e.message === "string" ? e.message : `The server answered ${status}.`;
    return new ApiError(kindOf(status, e.code), message, {
        status,
        param: typeof e.param === "string" ? e.param : "",
        retryAfter: Number(retryAfter) || 0,
    });
}

async function request(path, options = {}) {
    const headers = {...options.headers};
    if (key)
        headers.Authorization = `Bearer ${key}`;
    let answer;
    try {
        answer = await fetch(path, {...options, headers, cache: "no-store", credentials: "omit"});
    } catch (e) {
        if (e.name === "AbortError")
            throw e;
        throw new ApiError("network", "No connection to the server.");
    }
    if (!answer.ok) {
        const body = await answer.json().catch(() => null);
        throw errorOf(answer.status, body, answer.headers.get("Retry-After"));
    }
    return answer;
}

export async function getJson(path) {
    const answer = await request(path, {signal: AbortSignal.timeout(10000)}).catch((e) => {
        throw e instanceof ApiError ? e : new ApiError("network", "No connection to the server.");
    });
    return answer.json();
}

/* Events of a text/event-stream, as they come: {event, data} and, for comments, {comment}. The bytes are decoded as a
 * stream, so that characters and lines may be cut anywhere. Ends by itself, or throws "network", or "stalled" when
 * nothing, not even a sign of life, came for `silence` ms. */
export async function* events(body, silence = 25000) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let rest = "", event = "", data = [];
    try {
        for (;;) {
            let timer;
            const late = new Promise((_, no) => {
                timer = setTimeout(() => no(new ApiError("stalled", "Nothing came from the server any more.")),
                                   silence);
            });
            let part;
            try {
                part = await Promise.race([reader.read(), late]);
            } catch (e) {
                if (e.name === "AbortError" || e instanceof ApiError)
                    throw e;
                throw new ApiError("network", "The connection broke.");
            } finally {
                clearTimeout(timer);
            }
            rest += part.done ? decoder.decode() : decoder.decode(part.value, {stream: true});
            const lines = rest.split("\n");
            rest = lines.pop();
            for (const raw of lines) {
                const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
                if (line === "") {
                    if (data.length)
                        yield {event, data: data.join("\n")};
                    event = "";
                    data = [];
                } else if (line[0] === ":") {
                    yield {comment: line.slice(1).trim()};
                } else {
                    const at = line.indexOf(":");
                    const name = at < 0 ? line : line.slice(0, at);
                    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
                    if (name === "data")
                        data.push(value);
                    else if (name === "event")
                        event = value;
                }
            }
            if (part.done)
                return;
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

/* Ask for an answer. on.progress(done, total), on.text(s), on.thinking(s), on.call({index, id, name, arguments}) while it
 * comes; resolves with {finish, usage}. */
export async function complete(body, signal, on) {
    const answer = await request("/v1/chat/completions", {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}}),
        signal,
    });
    const result = {finish: "", usage: null};
    let done = false;
    for await (const e of events(answer.body)) {
        if (e.comment !== undefined) {
            const m = /^prefill (\d+)\/(\d+)$/.exec(e.comment);
            if (m)
                on.progress(Number(m[1]), Number(m[2]));
            continue;
        }
        if (e.data === "[DONE]") {
            done = true;
            break;
        }
        let chunk;
        try {
            chunk = JSON.parse(e.data);
        } catch {
            throw new ApiError("server", "The server sent something that is no event.");
        }
        if (chunk.error)
            throw errorOf(chunk.error.code === "context_length_exceeded" ? 400 : 500, chunk);
        if (chunk.usage)
            result.usage = chunk.usage;
        const choice = chunk.choices && chunk.choices[0];
        if (!choice)
            continue;
        const delta = choice.delta || {};
        if (delta.reasoning_content)
            on.thinking(delta.reasoning_content);
        if (delta.content)
            on.text(delta.content);
        for (const call of delta.tool_calls || [])
            on.call({index: call.index, id: call.id, name: call.function.name, arguments: call.function.arguments});
        if (choice.finish_reason)
            result.finish = choice.finish_reason;
    }
    if (!done)
        throw new ApiError("network", "The connection broke before the answer was complete.");
    return result;
}

/* Status events, for as long as the page is in sight. on.status(object), on.state("on" | "lost", retryInSeconds, error). */
export function watch(on) {
    let stop = null, timer = 0, tries = 0, wake = null;

    async function once() {
        stop = new AbortController();
        const answer = await request("/api/v1/events", {signal: stop.signal});
        for await (const e of events(answer.body)) {
            tries = 0;
            on.state("on");
            if (e.event === "status")
                on.status(JSON.parse(e.data));
        }
        throw new ApiError("network", "The connection to the server ended.");
    }

    async function run() {
        for (;;) {
            if (document.hidden) {
                // A browser has six connections to a server for all its tabs: those that are not looked at give theirs up.
                await new Promise((r) => document.addEventListener("visibilitychange", r, {once: true}));
                continue;
            }
            try {
                await once();
            } catch (e) {
                if (document.hidden)
                    continue;
                const wait = Math.min(15, 2 ** tries++);
                on.state("lost", wait, e);
                await new Promise((r) => {
                    wake = r;
                    timer = setTimeout(r, e.kind === "key" ? 3600000 : wait * 1000);
                });
                clearTimeout(timer);
            }
        }
    }

    document.addEventListener("visibilitychange", () => {
        if (document.hidden && stop)
            stop.abort();
    });
    window.addEventListener("online", () => wake && wake());
    run();
    return {retry: () => wake && wake()};
}
