/* Beside the chat: the plan as one bar of accounts, four figures, and the strip of layers. */
import {el, fill, byId, icon, bytes, count, percent, rate} from "./dom.js";
import {createStrip} from "./strip.js";

/* In the order of the bar: what belongs together stands together. */
const groups = [
    ["weights", "Shared weights", ["trunk", "embedding", "head"]],
    ["experts", "Experts", ["hot", "ring"]],
    ["talk", "The conversation", ["kv", "state", "snapshots", "text"]],
    ["work", "The program", ["scratch", "server", "code", "threads", "kernel"]],
    ["rest", "Left free", ["reserve"]],
];
const groupOf = (name) => groups.find((g) => g[2].includes(name)) || groups[3];
const orderOf = (name) => {
    const i = groups.findIndex((g) => g[2].includes(name));
    return i < 0 ? 350 : i * 100 + groups[i][2].indexOf(name);
};

/* For people who have not read the manual; the server's own words are there as well. */
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + ".";

/* Whether all weights are in memory, so that no token reads any. */
export const isWhole = (plan) => plan.model.hot_experts >= plan.model.experts && !plan.model.streamed_bytes_per_token;

/* What is to be seen at a glance, as texts and numbers of bytes. */
export function headline(plan) {
    const weights = plan.model.bytes, budget = plan.budget_bytes;
    if (isWhole(plan))
        return [weights, " of weights, all in memory, in a budget of ", budget];
    return [weights, weights > budget ? " of weights answer inside " : " of weights in a budget of ", budget];
}

export function createMemory() {
    const body = byId("plan-body"), fold = byId("plan-fold");
    const bar = el("div.bar", {role: "img"}), miniBar = el("div.bar.mini", {"aria-hidden": "true"});
    const detail = el("p.detail", {id: "account-detail"});
    const table = el("ul.accounts", {"aria-label": "Accounts"});
    const scale = el("div.scale"), use = el("p.use"), lead = el("h2.lead");
    const miniText = el("span.mini-text");
    const strip = createStrip();
    const figures = {};
    const samples = [];
    let plan = null, status = null, answerBegan = null, requestBegan = null, isIdle = true, pinned = null;

    const figure = (name, label, help) => {
        const value = el("dd", {}, "–");
        figures[name] = value;
        return el("div.figure", {title: help, data: {figure: name}}, el("dt", {}, label), value);
    };
    const grid = el("dl.figures", {},
                    figure("speed", "Speed", "Tokens a second: of the answer, or of the prompt while it is read"),
                    figure("hits", "In memory", "Share of expert uses that found their weights in memory, or read ahead in time"),
                    figure("bytes", "Read per token", "Bytes read from the drive for one token"),
                    figure("phase", "Now", "What the engine does"));
    fill(body,
         el("section", {"aria-labelledby": "lead"}, Object.assign(lead, {id: "lead"}), scale, bar, use, detail),
         grid,
         el("section.layers", {}, el("h3", {}, "Layers, as they work"), strip.node,
            el("ul.legend", {}, el("li.hit", {}, "in memory"), el("li.early", {}, "read ahead"), el("li.read", {}, "waited for"))),
         el("section", {}, el("h3", {}, "Accounts of the budget"), table));
    fill(fold, miniBar, miniText, icon("chevron"));
    fold.setAttribute("aria-label", "Memory plan");
    fold.addEventListener("click", () => {
        const open = byId("plan").classList.toggle("open");
        fold.setAttribute("aria-expanded", String(open));
    });

    /* ---- the bar ---- */

    function point(name) {
        for (const node of body.querySelectorAll("[data-account]"))
            node.classList.toggle("pointed", node.dataset.account === name);
        const a = plan && plan.accounts.find((x) => x.name === name);
        fill(detail, a ? [el("b", {}, a.name), ` ${bytes(a.planned_bytes)}. ${sentence(a.purpose)}`]
                       : "Choose an account to read what it is for.");
    }

    function segment(a, budget, interactive) {
        const node = el(`div.segment.${groupOf(a.name)[0]}`, {data: {account: a.name, planned: a.planned_bytes, used: a.used_bytes}},
                        el("span"));
        node.style.width = `${a.planned_bytes / budget * 100}%`;
        node.firstChild.style.width = `${a.planned_bytes ? Math.min(1, a.used_bytes / a.planned_bytes) * 100 : 0}%`;
        if (interactive) {
            node.addEventListener("pointerenter", () => point(a.name));
            node.addEventListener("pointerleave", () => point(pinned));
        }
        return node;
    }

    function drawBar() {
        const budget = plan.budget_bytes;
        const list = plan.accounts.filter((a) => a.planned_bytes > 0)
            .sort((a, b) => orderOf(a.name) - orderOf(b.name));
        const free = budget - plan.planned_bytes;
        fill(bar, list.map((a) => segment(a, budget, true)));
        fill(miniBar, list.map((a) => segment(a, budget, false)));
        const used = list.reduce((sum, a) => sum + a.used_bytes, 0);
        bar.setAttribute("aria-label", `Budget of ${bytes(budget)}: ${bytes(used)} in use. ` +
            list.map((a) => `${a.name} ${bytes(a.planned_bytes)}`).join(", ") +
            (free > 0 ? `, not planned ${bytes(free)}` : ""));
        const peak = plan.kernel && plan.kernel.peak_bytes;
        fill(use, el("span", {}, el("b", {}, bytes(used)), ` of ${bytes(budget)} in use`),
             peak ? el("span.peak", {title: "The most that the system has counted for the server so far"},
                       `peak ${bytes(peak)}`) : "");
    }

    function drawList() {
        const rows = [];
        for (const [kind, label, names] of groups) {
            const list = plan.accounts.filter((a) => groupOf(a.name)[0] === kind && a.planned_bytes > 0)
                .sort((a, b) => orderOf(a.name) - orderOf(b.name));
            if (!list.length)
                continue;
            rows.push(el("li.group", {}, el(`span.dot.${kind}`), el("span", {}, label),
                         el("span.num", {}, bytes(list.reduce((n, a) => n + a.planned_bytes, 0)))));
            for (const a of list)
                rows.push(el("li", {}, accountRow(a, kind)));
        }
        const focused = document.activeElement && document.activeElement.dataset && document.activeElement.dataset.account;
        fill(table, rows);
        if (focused && table.querySelector(`[data-account="${CSS.escape(focused)}"]`))
            table.querySelector(`[data-account="${CSS.escape(focused)}"]`).focus();
    }

    function accountRow(a, kind) {
        const partly = a.used_bytes < a.planned_bytes;
        const row = el("button.account", {
            type: "button", data: {account: a.name}, "aria-describedby": "account-detail",
            onpointerenter: () => point(a.name), onpointerleave: () => point(pinned),
            onfocus: () => point(a.name), onblur: () => point(pinned),
            onclick: () => {
                pinned = pinned === a.name ? null : a.name;
                point(a.name);
                detail.scrollIntoView({block: "nearest"});
            },
        }, el("span", {}, a.name),
           el("span.num", {}, partly && kind !== "rest" ? `${bytes(a.used_bytes)} of ${bytes(a.planned_bytes)}` : bytes(a.planned_bytes)));
        return row;
    }

    /* Weights and budget to the same scale, and how the budget widens into the bar below. */
    function drawScale() {
        const m = plan.model;
        if (!m) {
            fill(lead, "Memory");
            return;
        }
        const most = Math.max(m.bytes, plan.budget_bytes);
        const weights = el("div.weights"), budget = el("div.budget");
        weights.style.width = `${m.bytes / most * 100}%`;
        budget.style.width = `${plan.budget_bytes / most * 100}%`;
        const ns = "http://www.w3.org/2000/svg";
        const svg = document.createElementNS(ns, "svg");
        svg.setAttribute("viewBox", "0 0 100 10");
        svg.setAttribute("preserveAspectRatio", "none");
        svg.setAttribute("aria-hidden", "true");
        const path = document.createElementNS(ns, "path");
        path.setAttribute("d", `M0 0 H${plan.budget_bytes / most * 100} L100 10 H0 Z`);
        svg.append(path);
        const big = (n) => el("span.big", {}, bytes(n));
        fill(lead, headline(plan).map((part) => (typeof part === "number" ? big(part) : part)));
        fill(scale,
             el("div.scale-row", {}, el("span", {}, "Weights, on the drive"), weights),
             el("div.scale-row", {}, el("span", {}, "Budget, in memory"), budget), svg);
    }

    /* ---- figures ---- */

    function since(from, to) {
        const d = (name) => to[name] - from[name];
        const uses = d("hits") + d("guesses_used") + d("reads");
        const decoded = d("tokens_decoded"), prefilled = d("tokens_prefilled"), tokens = decoded + prefilled;
        return {
            decoded, prefilled, uses,
            speed: d("decode_seconds") > 0 ? d("tokens_decoded") / d("decode_seconds") : 0,
            prefill: d("prefill_seconds") > 0 ? prefilled / d("prefill_seconds") : 0,
            hits: uses > 0 ? (d("hits") + d("guesses_used")) / uses : null,
            bytes: tokens > 0 ? d("read_bytes") / tokens : null,
        };
    }

    /* While a prompt is computed, counters of tokens stand still until a chunk is through: what is told of its progress
     * does not. */
    function reading() {
        const last = samples[samples.length - 1];
        const first = samples.find((x) => x.phase === "prefill" && x.prompt_total === last.prompt_total);
        const s = since(first, last), n = last.prompt_done - first.prompt_done;
        return {...s, prefilled: n, prefill: n > 0 ? n / ((last.at - first.at) / 1000) : 0,
                bytes: n > 0 ? (last.read_bytes - first.read_bytes) / n : null};
    }

    // The last seconds, or as long as it takes for a few tokens.
    function recent() {
        const last = samples[samples.length - 1];
        for (let i = samples.length - 2; i >= 0; i--) {
            const s = since(samples[i], last);
            if ((last.at - samples[i].at > 2500 && s.decoded + s.prefilled > 0) || s.decoded > 60)
                return s;
        }
        return samples.length > 1 ? since(samples[0], last) : null;
    }

    function drawFigures() {
        const phase = status.phase;
        let s = phase === "idle" ? (answerBegan && since(answerBegan, status)) : phase === "prefill" ? reading() : recent();
        if (s && !s.decoded && !s.prefilled && !s.uses)
            s = null;
        const speed = s && (phase === "prefill" || (s.decoded === 0 && s.prefilled > 0) ? s.prefill : s.speed);
        const words = {idle: "Idle", prepare: "Preparing", prefill: "Reading the prompt", answer: "Answering"};
        let now = words[phase] || phase;
        if (phase === "prefill" && status.prompt_total)
            now = `Prompt ${percent(status.prompt_done / status.prompt_total)}`;
        if (status.queued)
            now += `, ${status.queued} waiting`;
        const set = (name, value, unit) => {
            const text = value === null || value === undefined ? "–" : value;
            fill(figures[name], text, unit && text !== "–" ? el("small", {}, ` ${unit}`) : "");
        };
        set("speed", speed ? rate(speed) : null, "tok/s");
        set("hits", s && s.hits !== null ? percent(s.hits) : null);
        set("bytes", s && s.bytes !== null ? bytes(s.bytes) : null);
        set("phase", now);
        figures.phase.parentNode.classList.toggle("busy", phase !== "idle");
        fill(miniText, speed ? `${rate(speed)} tok/s` : now, s && s.hits !== null ? ` · ${percent(s.hits)} in memory` : "");
    }

    point(null);
    return {
        strip,
        get plan() { return plan; },
        get status() { return status; },
        /* What GET /api/v1/memory says. */
        setPlan(next) {
            const first = !plan || plan.budget_bytes !== next.budget_bytes;
            plan = next;
            drawBar();
            drawList();
            if (first)
                drawScale();
            point(pinned);
        },
        /* A status event. */
        setStatus(next) {
            next.at = performance.now();
            const restarted = status && next.read_bytes < status.read_bytes;
            if (restarted)
                samples.length = 0;
            const begins = isIdle && next.phase !== "idle";
            if (begins || !answerBegan || restarted) {
                samples.length = 0;
                answerBegan = status && !restarted ? status : next;
                if (status && !restarted)
                    samples.push({...status, at: next.at - 250});
            }
            isIdle = next.phase === "idle";
            status = next;
            samples.push(next);
            while (samples.length > 90)
                samples.shift();
            drawFigures();
            if (Array.isArray(next.layers))
                strip.update(next.layers, begins);
        },
        lost() {
            fill(figures.phase, "No connection");
            fill(miniText, "No connection");
        },
        /* Since a status of before: {hits, bytes}. */
        measure: (from) => (from && status ? since(from, status) : null),
    };
}
