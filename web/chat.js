/* The conversation in sight: its messages, the answer that is being written, and what can be done with each.
 *
 * A run is one answer on its way. It belongs to its conversation, not to the page: it goes on, and is saved, while
 * another conversation is looked at. */
import {el, fill, byId, icon, iconButton, bytes, count, rate, percent, seconds, announce, toast, copyText} from "./dom.js";
import {complete, advice, ApiError} from "./api.js";
import {renderer, render} from "./markdown.js";
import * as store from "./store.js";
import {current, requestFields} from "./settings.js";
import {askKey} from "./dialogs.js";
import {headline, isWhole} from "./memory.js";

const SAVE_MS = 1000, NEAR_END = 90, BATCH = 24, TRIES_MAX = 30;

/* on.changed(): the list is to be read again; on.title(text); on.running(ids); on.status(); on.storage(error);
 * env: {memory} */
export function createChat(on, memory) {
    const box = byId("messages"), scroll = byId("scroll"), jump = byId("jump");
    const runs = new Map();  // conversation id to run
    const views = new Map(); // message id to what is shown of it
    const dropped = new WeakSet(); // conversations that were deleted while they were answered: not to be saved again
    let conv = store.newConversation(), sticks = true, filling = 0;

    /* ---- saving ---- */

    async function save(c) {
        if (dropped.has(c))
            return;
        try {
            await store.save(c);
            on.storage(null);
        } catch (e) {
            on.storage(e);
        }
    }

    function saveSoon(run) {
        const now = performance.now();
        if (now - run.saved > SAVE_MS) {
            run.saved = now;
            save(run.conv);
        }
    }

    /* ---- scrolling ---- */

    scroll.addEventListener("scroll", () => {
        sticks = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_END;
        jump.hidden = sticks;
    }, {passive: true});
    const toEnd = () => (scroll.scrollTop = scroll.scrollHeight);
    const follow = () => sticks && toEnd();
    fill(jump, icon("down"), "Latest");
    jump.addEventListener("click", () => {
        sticks = true;
        toEnd();
    });
    new ResizeObserver(follow).observe(scroll);

    /* ---- one message ---- */

    function actions(m) {
        const row = el("div.actions");
        const run = runs.get(conv.id);
        if (run && run.message === m)
            return row;
        if (m.stats)
            row.append(el("span.stats", {}, statsText(m.stats)));
        if (m.content)
            row.append(iconButton("copy", "Copy", async () => {
                await copyText(m.content);
                toast("Copied.");
            }, ".small"));
        if (m.role === "user")
            row.append(iconButton("edit", "Edit and send again", () => edit(m), ".small"));
        if (m.role === "assistant")
            row.append(iconButton("again", "Answer again", () => again(m), ".small"));
        return row;
    }

    function statsText(s) {
        const parts = [];
        if (s.tokens)
            parts.push(`${count(s.tokens)} tokens`);
        if (s.tokens > 1 && s.seconds > 0)
            parts.push(`${rate(s.tokens / s.seconds)} tok/s`);
        if (s.first)
            parts.push(`first after ${seconds(s.first)}`);
        if (Number.isFinite(s.hits))
            parts.push(`${percent(s.hits)} in memory`);
        return parts.join(" · ");
    }

    function errorBox(m) {
        const e = new ApiError(m.error.kind, m.error.message);
        return el("div.error", {role: "alert"}, icon("alert"),
                  el("div", {}, el("p", {}, el("b", {}, e.message)), el("p", {}, advice(e)),
                     el("div.row", {},
                        e.kind === "key"
                            ? el("button.plain", {type: "button", onclick: async () => (await askKey(e.message)) && again(m, true)}, "Enter the key")
                            : el("button.plain", {type: "button", onclick: () => again(m, true)}, icon("again"), "Try again"))));
    }

    const finishNotes = {
        length: "The answer was cut at the longest length, or the context is full.",
        stopped: "Stopped.",
        broken: "This answer was cut off before its end.",
    };

    function callCard(m, call, i) {
        const result = conv.messages.find((x) => x.role === "tool" && x.call === call.id);
        let text = call.arguments;
        try {
            text = JSON.stringify(JSON.parse(call.arguments), null, 2);
        } catch {
            // as it is
        }
        const code = el("div");
        render(code, "```json\n" + text.replace(/^```/gm, "'''") + "\n```");
        const card = el("section.call", {"aria-label": `Tool call ${call.name}`},
                        el("h4", {}, icon("tool"), call.name), code);
        if (result) {
            card.append(el("h5", {}, "Result"), el("pre.result", {tabIndex: 0}, result.content));
        } else if (conv.messages.at(-1) === m || conv.messages.slice(conv.messages.indexOf(m) + 1).every((x) => x.role === "tool")) {
            const area = el("textarea", {rows: 2, id: `result-${m.id}-${i}`, placeholder: "What the function returned, for the model to read"});
            card.append(el("label", {htmlFor: area.id}, "Result"), area,
                        el("div.row", {}, el("button.primary", {type: "button", onclick: () => answerCall(m, call, area.value)}, "Send the result")));
        }
        return card;
    }

    function thinkingBox(m, run) {
        const details = el("details.thinking", {}, el("summary", {}, run && !m.content && !m.calls
            ? [el("i.pulse"), "Thinking…"] : `Thought${m.stats && m.stats.thought >= 1 ? ` for ${seconds(m.stats.thought)}` : ""}`));
        const inner = el("div.thought", {}, m.thinking);
        details.append(inner);
        return {details, inner};
    }

    function view(m) {
        let v = views.get(m.id);
        if (!v) {
            const names = {user: "You", assistant: "Answer", tool: "Tool result"};
            v = {node: el(`article.message.${m.role}`, {data: {id: m.id}, "aria-label": names[m.role]})};
            views.set(m.id, v);
        }
        return v;
    }

    // Everything of a message anew.
    function show(m) {
        const v = view(m), run = runs.get(conv.id), live = run && run.message === m ? run : null;
        v.text = v.thought = v.progress = null;
        if (m.role === "user") {
            fill(v.node, el("div.bubble", {}, m.content), actions(m));
            return v;
        }
        if (m.role === "tool") {
            v.node.hidden = conv.messages.some((x) => x.calls && x.calls.some((c) => c.id === m.call));
            fill(v.node, el("pre.result", {}, m.content));
            return v;
        }
        const parts = [];
        if (m.thinking) {
            const t = thinkingBox(m, live);
            const was = v.node.querySelector("details.thinking");
            t.details.open = Boolean(was && was.open);
            v.thought = t;
            parts.push(t.details);
        }
        const text = el("div.text");
        v.text = text;
        v.renderer = renderer(text);
        if (m.content)
            v.renderer.update(m.content);
        parts.push(text);
        for (const [i, call] of (m.calls || []).entries())
            parts.push(callCard(m, call, i));
        if (live) {
            v.progress = el("div.progress");
            parts.push(v.progress);
        } else {
            if (m.error)
                parts.push(errorBox(m));
            else if (finishNotes[m.finish])
                parts.push(el("p.note", {}, finishNotes[m.finish]));
            else if (!m.content && !m.calls && m.finish)
                parts.push(el("p.note", {}, m.thinking ? "The model thought, and then said nothing." : "The model said nothing."));
            parts.push(actions(m));
        }
        v.node.classList.toggle("live", Boolean(live));
        fill(v.node, parts);
        if (live)
            showProgress(live);
        return v;
    }

    // Messages from the end backwards, in batches, so that a long conversation is there at once and stays smooth.
    function showAll() {
        const ticket = ++filling;
        views.clear();
        box.replaceChildren();
        let i = conv.messages.length;
        const batch = () => {
            if (ticket !== filling)
                return;
            const begin = performance.now(), nodes = [];
            const before = scroll.scrollHeight, top = scroll.scrollTop;
            while (i > 0 && (nodes.length < BATCH || performance.now() - begin < 6) && performance.now() - begin < 40)
                nodes.unshift(show(conv.messages[--i]).node);
            box.prepend(...nodes);
            if (sticks)
                toEnd();
            else if (scroll.scrollTop === top && top < 50)
                scroll.scrollTop = top + scroll.scrollHeight - before;
            if (i > 0)
                setTimeout(batch, 8);
        };
        sticks = true;
        batch();
        toEnd();
        jump.hidden = true;
        byId("empty").hidden = conv.messages.length > 0;
        on.title(conv);
        on.status();
    }

    function append(m) {
        byId("empty").hidden = true;
        box.append(show(m).node);
        follow();
    }

    /* ---- an answer ---- */

    function showProgress(run) {
        const v = views.get(run.message.id);
        if (!v || !v.progress || run.conv !== conv)
            return;
        const m = run.message;
        if (run.retry) {
            fill(v.progress, el("span.waiting", {role: "status"}, el("i.pulse"), `${run.retry.message} Next try in ${run.retry.left} s.`));
        } else if (m.content || m.calls || m.thinking) {
            fill(v.progress, m.content || m.calls ? el("i.caret", {"aria-hidden": "true"}) : "");
        } else if (run.total > 0 && run.done < run.total) {
            const left = run.done > run.first && run.rate ? (run.total - run.done) / run.rate : 0;
            const bar = el("progress", {max: run.total, value: run.done, "aria-label": "Progress of the prompt"});
            fill(v.progress, el("span.waiting", {}, el("i.pulse"),
                `Reading the prompt: ${count(run.done)} of ${count(run.total)} tokens`, left > 1.5 ? `, ${seconds(left)} left` : ""), bar);
        } else {
            const ahead = memory.status && memory.status.queued;
            fill(v.progress, el("span.waiting", {}, el("i.pulse"),
                ahead ? `Waiting: the server answers one at a time, ${count(ahead)} in the queue` : "Starting"));
        }
    }

    // Rendering takes at most a fifth of the time, however long the text.
    function drawSoon(run) {
        if (run.drawing || run.conv !== conv)
            return;
        run.drawing = true;
        setTimeout(() => requestAnimationFrame(() => {
            run.drawing = false;
            if (run.conv === conv && runs.get(conv.id) === run)
                draw(run);
        }), Math.min(1500, run.cost * 4));
    }

    function draw(run) {
        const m = run.message, v = views.get(m.id), begin = performance.now();
        if (!v)
            return;
        if (!v.text || (m.thinking && !v.thought) || run.reshow) {
            run.reshow = false;
            show(m);
        } else {
            if (v.thought && v.thought.inner.textContent.length !== m.thinking.length)
                v.thought.inner.firstChild.appendData(m.thinking.slice(v.thought.inner.textContent.length));
            v.renderer.update(m.content);
            showProgress(run);
        }
        follow();
        run.cost = performance.now() - begin;
    }

    function messagesFor(c, until) {
        const settings = current(), out = [];
        const system = c.system !== null ? c.system : settings.system;
        if (system.trim())
            out.push({role: "system", content: system});
        const list = c.messages.slice(0, until);
        const lastUser = list.findLastIndex((m) => m.role === "user");
        list.forEach((m, i) => {
            if (m.role === "tool") {
                out.push({role: "tool", tool_call_id: m.call, content: m.content});
            } else if (m.role === "user") {
                out.push({role: "user", content: m.content});
            } else if (m.content || (m.calls && m.calls.length)) {
                const one = {role: "assistant", content: m.content};
                if (m.thinking && i > lastUser)
                    one.reasoning_content = m.thinking;
                if (m.calls && m.calls.length)
                    one.tool_calls = m.calls.map((k) => ({id: k.id, type: "function", function: {name: k.name, arguments: k.arguments}}));
                out.push(one);
            }
        });
        return out;
    }

    async function attempt(run, body) {
        const m = run.message, begin = performance.now();
        let began = 0;
        run.done = run.total = run.first = run.rate = 0;
        const from = memory.status;
        const heard = () => {
            if (!began) {
                began = performance.now();
                run.began = began;
                if (run.conv === conv)
                    announce("The answer begins.");
            }
            saveSoon(run);
            drawSoon(run);
        };
        const result = await complete(body, run.controller.signal, {
            progress(done, total) {
                const now = performance.now();
                if (!run.total) {
                    run.first = done;
                    run.at = now;
                }
                run.done = done;
                run.total = total;
                run.rate = now > run.at ? (done - run.first) / ((now - run.at) / 1000) : 0;
                if (run.conv === conv)
                    showProgress(run);
            },
            text(s) {
                if (m.thinking && !run.thought)
                    run.thought = (performance.now() - began) / 1000;
                m.content += s;
                heard();
            },
            thinking(s) {
                m.thinking = (m.thinking || "") + s;
                heard();
            },
            call(call) {
                m.calls = m.calls || [];
                m.calls.push({id: call.id, name: call.name, arguments: call.arguments});
                run.reshow = true;
                heard();
            },
        });
        m.finish = result.finish || "stop";
        const end = performance.now(), u = result.usage;
        const measured = memory.measure(from);
        m.stats = {seconds: (end - (began || end)) / 1000, first: ((began || end) - begin) / 1000};
        if (u) {
            m.stats.tokens = u.completion_tokens;
            m.stats.prompt = u.prompt_tokens;
            if (u.prompt_tokens_details)
                m.stats.cached = u.prompt_tokens_details.cached_tokens;
        }
        if (run.thought)
            m.stats.thought = run.thought;
        if (measured && measured.hits !== null)
            m.stats.hits = measured.hits;
    }

    function pause(run, wait, message) {
        return new Promise((done, no) => {
            let left = Math.max(1, Math.round(wait));
            const tick = () => {
                run.retry = {left, message};
                showProgress(run);
                if (left-- <= 0) {
                    clearInterval(timer);
                    run.retry = null;
                    showProgress(run);
                    done();
                }
            };
            const timer = setInterval(tick, 1000);
            run.controller.signal.addEventListener("abort", () => {
                clearInterval(timer);
                run.retry = null;
                no(new DOMException("stopped", "AbortError"));
            }, {once: true});
            run.now = () => (left = 0);
            tick();
        });
    }

    /* Answer what stands before message `m`, which is empty and the last one. */
    async function start(c, m) {
        const run = {conv: c, message: m, controller: new AbortController(), saved: performance.now(), cost: 0, done: 0, total: 0};
        runs.set(c.id, run);
        on.running(new Set(runs.keys()));
        on.status();
        if (c === conv)
            append(m);
        await save(c);
        on.changed();
        try {
            const settings = current();
            const body = {model: memory.plan && memory.plan.model ? memory.plan.model.name : await modelName(),
                          messages: messagesFor(c, c.messages.indexOf(m)), ...requestFields(settings)};
            for (let tries = 0;; tries++) {
                try {
                    await attempt(run, body);
                    break;
                } catch (e) {
                    const nothing = !m.content && !m.thinking && !(m.calls && m.calls.length);
                    if (e.kind === "key" && nothing && (await askKey(e.message)))
                        continue;
                    if (!(nothing && ["busy", "network", "stalled"].includes(e.kind) && tries < TRIES_MAX))
                        throw e;
                    await pause(run, e.retryAfter || Math.min(10, 2 ** tries), e.kind === "busy" ? "The server is busy." : "No connection to the server.");
                }
            }
        } catch (e) {
            if (e.name === "AbortError") {
                m.finish = "stopped";
            } else {
                m.finish = "broken";
                m.error = {kind: e.kind || "request", message: e.message};
            }
        }
        runs.delete(c.id);
        c.updated = Date.now();
        if (c === conv) {
            show(m);
            follow();
            announce(m.error ? `Error: ${m.error.message}` : m.finish === "stopped" ? "Stopped." : `Answer complete. ${m.content.slice(0, 400)}`);
        }
        on.running(new Set(runs.keys()));
        on.status();
        await save(c);
        on.changed();
    }

    async function modelName() {
        const {getJson} = await import("./api.js");
        try {
            const list = await getJson("/v1/models");
            return list.data[0].id;
        } catch {
            return "default";
        }
    }

    const fresh = (role, content) => ({id: store.newId(), role, content});

    function send(text) {
        if (!text.trim() || runs.has(conv.id))
            return false;
        const now = Date.now(), user = fresh("user", text), answer = fresh("assistant", "");
        if (!conv.title)
            conv.title = text.trim().split("\n")[0].slice(0, 80);
        conv.updated = now;
        conv.messages.push(user, answer);
        sticks = true;
        append(user);
        on.title(conv);
        // What came before the new messages has lost its forms for results.
        refreshOpenCalls();
        start(conv, answer);
        return true;
    }

    function refreshOpenCalls() {
        for (const m of conv.messages)
            if (m.calls && views.has(m.id) && !(runs.get(conv.id) && runs.get(conv.id).message === m))
                show(m);
    }

    /* ---- what can be done with a message ---- */

    function offerUndo(before, what) {
        const c = conv, title = c.title;
        toast(what, "Undo", async () => {
            const run = runs.get(c.id);
            if (run) {
                run.controller.abort();
                await new Promise((r) => setTimeout(r, 50));
            }
            c.messages = before;
            c.title = title;
            await save(c);
            on.changed();
            if (c === conv)
                showAll();
        });
    }

    function cut(from) {
        for (const m of conv.messages.slice(from)) {
            const v = views.get(m.id);
            if (v)
                v.node.remove();
            views.delete(m.id);
        }
        conv.messages = conv.messages.slice(0, from);
    }

    function again(m, quiet) {
        if (runs.has(conv.id))
            return;
        const before = conv.messages.slice(), i = conv.messages.indexOf(m);
        if (i < 0)
            return;
        cut(i);
        const answer = fresh("assistant", "");
        conv.messages.push(answer);
        if (!quiet && (m.content || before.length > i + 1))
            offerUndo(before, before.length > i + 1 ? "This answer and what followed are replaced." : "The answer is replaced.");
        start(conv, answer);
    }

    function edit(m) {
        if (runs.has(conv.id)) {
            toast("Stop the answer first.");
            return;
        }
        const v = view(m);
        const area = el("textarea", {value: m.content, rows: Math.min(12, m.content.split("\n").length + 1), "aria-label": "Edit the message"});
        const cancel = () => {
            show(m);
            byId("input").focus();
        };
        const sendIt = () => {
            const text = area.value;
            if (!text.trim())
                return;
            const before = conv.messages.slice(), i = conv.messages.indexOf(m);
            if (before.length > i + 1)
                offerUndo(before, "The message and what followed are replaced.");
            cut(i);
            if (i === 0 && !conv.named)
                conv.title = "";
            send(text);
            byId("input").focus();
        };
        area.addEventListener("keydown", (e) => {
            if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
                e.preventDefault();
                sendIt();
            }
            if (e.key === "Escape") {
                e.preventDefault();
                e.stopPropagation();
                cancel();
            }
        });
        fill(v.node, el("div.editing", {}, area, el("div.row.end", {},
            el("button.plain", {type: "button", onclick: cancel}, "Cancel"),
            el("button.primary", {type: "button", onclick: sendIt}, "Send"))));
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    }

    function answerCall(m, call, text) {
        const tool = {...fresh("tool", text), call: call.id};
        conv.messages.push(tool);
        append(tool);
        show(m);
        const open = m.calls.filter((c) => !conv.messages.some((x) => x.role === "tool" && x.call === c.id));
        if (open.length) {
            save(conv);
            return;
        }
        const answer = fresh("assistant", "");
        conv.messages.push(answer);
        sticks = true;
        start(conv, answer);
    }

    /* ---- the face ---- */

    const lastOf = (role) => conv.messages.findLast((m) => m.role === role);

    window.addEventListener("pagehide", () => runs.forEach((run) => save(run.conv)));
    document.addEventListener("visibilitychange", () => {
        if (document.hidden)
            runs.forEach((run) => save(run.conv));
    });

    return {
        send,
        get conversation() { return conv; },
        get isRunning() { return runs.has(conv.id); },
        stop() {
            const run = runs.get(conv.id);
            if (run)
                run.controller.abort();
            return Boolean(run);
        },
        /* A conversation was deleted, or all of them: nothing of it comes back. */
        drop(id) {
            for (const run of runs.values()) {
                if (id === undefined || run.conv.id === id) {
                    dropped.add(run.conv);
                    run.controller.abort();
                }
            }
        },
        fresh() {
            conv = store.newConversation();
            showAll();
        },
        async open(id) {
            const run = runs.get(id);
            const c = run ? run.conv : await store.load(id);
            if (!c)
                return false;
            conv = c;
            const last = conv.messages.at(-1);
            if (!run && last && last.role === "assistant" && !last.finish) {
                last.finish = "broken";
                last.error = {kind: "network", message: "This answer was cut off when the page was left."};
            }
            showAll();
            return true;
        },
        /* Another tab saved it. */
        async reload(id) {
            if (id === conv.id && !runs.has(id) && !box.querySelector(".editing"))
                await this.open(id);
        },
        async rename(id, title) {
            const run = runs.get(id);
            const c = id === conv.id ? conv : run ? run.conv : await store.load(id);
            if (!c)
                return;
            c.title = title;
            c.named = true;
            await save(c);
            if (c === conv)
                on.title(conv);
        },
        keep: () => conv.messages.length && save(conv),
        editLast: () => lastOf("user") && edit(lastOf("user")),
        againLast: () => lastOf("assistant") && again(lastOf("assistant")),
        async copyLast() {
            const m = lastOf("assistant");
            if (m && m.content) {
                await copyText(m.content);
                toast("Answer copied.");
            }
        },
        /* The queue may have changed, or the connection is back. */
        tick(isBack) {
            const run = runs.get(conv.id);
            if (isBack)
                runs.forEach((r) => r.retry && r.now && r.now());
            if (run && !run.message.content && !run.message.thinking && !run.retry)
                showProgress(run);
        },
    };
}

/* What is shown before the first message: why a big model fits, in this server's numbers. */
export function emptyState(box, plan, ask) {
    const m = plan && plan.model;
    const questions = ["What does “owl” mean?", "What is the capital of Norway?", "Tell me a story about a lighthouse."];
    const facts = [];
    let title = "Ask something";
    if (m) {
        title = headline(plan).map((part) => (typeof part === "number" ? bytes(part) : part)).join("");
        if (m.experts && m.experts_per_token)
            facts.push([`${count(m.experts_per_token)} of ${count(m.experts)}`, `experts work on a token: it needs ${percent(m.experts_per_token / m.experts)} of them, never all.`]);
        if (m.hot_experts)
            facts.push([m.hot_experts >= m.experts ? "All" : count(m.hot_experts), "experts stay in memory: those most likely to be needed again."]);
        if (!isWhole(plan))
            facts.push([m.read_bytes_per_token_high ? `≈ ${bytes((m.read_bytes_per_token_low + m.read_bytes_per_token_high) / 2)}` : "The rest", "a token is what the plan expects to be read from the drive, while the processor computes."]);
    }
    fill(box, el("h2", {}, title),
         el("p", {}, m && !isWhole(plan) ? "The weights that every token needs sit in memory. The others stay on the drive and are read when a token asks for them." : ""),
         el("ul.facts", {}, facts.map(([value, text]) => el("li", {}, el("b", {}, value), el("span", {}, text)))),
         el("div.questions", {}, questions.map((q) => el("button.question", {type: "button", onclick: () => ask(q.replace(/[“”]/g, '"'))}, q))));
}
