/* Puts the parts together: what each may do with the others is decided here. */
import {byId, el, fill, icon, iconButton, toast} from "./dom.js";
import {getJson, watch} from "./api.js";
import * as store from "./store.js";
import {createMemory} from "./memory.js";
import {createChat, emptyState} from "./chat.js";
import {createList} from "./list.js";
import {listen} from "./keys.js";
import {askKey, showSettings, showShortcuts} from "./dialogs.js";
import {countChanged, nextTheme, themeSwitch} from "./settings.js";

const app = byId("app"), input = byId("input"), send = byId("send"), banner = byId("banner");
const memory = createMemory();
let own = null, isLost = false, storageError = null, keepsNothing = false, keyAsked = false;

/* ---- what is said above the messages ---- */

let countdown = 0, connection = null;

function drawBanner() {
    const parts = [];
    if (connection)
        parts.push(el("p.lost", {}, icon("alert"), el("span", {}, connection.text),
                      el("button.text-button", {type: "button", onclick: () => watcher.retry()}, "Retry now")));
    if (storageError)
        parts.push(el("p", {}, icon("alert"), el("span", {}, storageError.name === "QuotaExceededError"
            ? "The browser's storage is full: this conversation is not saved. Export or delete conversations in the settings."
            : `This conversation could not be saved: ${storageError.message}`)));
    if (keepsNothing)
        parts.push(el("p", {}, icon("alert"), el("span", {}, "This browser keeps nothing for this page: conversations are gone when it is closed. Export what you want to keep.")));
    fill(banner, parts);
}

/* ---- parts ---- */

const chat = createChat({
    changed: () => list.refresh(),
    title(c) {
        byId("title").textContent = c.title || "New conversation";
        document.title = c.title ? `${c.title} · Sluice` : "Sluice";
    },
    running: (ids) => list.setRunning(ids),
    status: drawSend,
    storage(e) {
        if (storageError !== e) {
            storageError = e;
            drawBanner();
        }
    },
}, memory);

const list = createList({
    async open(id) {
        closeSide();
        await go(id);
    },
    removed(id) {
        chat.drop(id);
        if (chat.conversation.id === id)
            newConversation();
    },
    restored: (id) => go(id),
    renamed: (id, title) => chat.rename(id, title),
});

async function go(id) {
    if (!(await chat.open(id)))
        return false;
    list.select(id);
    store.setSetting("last", id);
    history.replaceState(null, "", `#${id}`);
    return true;
}

function newConversation() {
    chat.fresh();
    list.select(null);
    store.setSetting("last", undefined);
    history.replaceState(null, "", location.pathname);
    closeSide();
    if (!matchMedia("(pointer: coarse)").matches) // there a focus brings up the keyboard
        input.focus();
}
byId("new").addEventListener("click", newConversation);

/* ---- the composer ---- */

function drawSend() {
    const running = chat.isRunning;
    fill(send, icon(running ? "stop" : "send"));
    send.setAttribute("aria-label", running ? "Stop" : "Send");
    send.title = running ? "Stop (Esc)" : "Send (Enter)";
    send.classList.toggle("stop", running);
    send.disabled = !running && !input.value.trim();
}

function grow() {
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight, 240)}px`;
    drawSend();
}

function submit(text) {
    if (!chat.send(text))
        return;
    input.value = "";
    grow();
    keepDraft();
    const c = chat.conversation;
    list.select(c.id);
    store.setSetting("last", c.id);
    history.replaceState(null, "", `#${c.id}`);
}

byId("composer").addEventListener("submit", (e) => {
    e.preventDefault();
    if (chat.isRunning)
        chat.stop();
    else
        submit(input.value);
});
input.addEventListener("input", () => {
    grow();
    keepDraft();
});

/* What is written and not sent outlasts a reload of the tab. */
function keepDraft() {
    try {
        sessionStorage.setItem("sluice.draft", input.value);
    } catch {
        // then it does not
    }
}

function restoreDraft() {
    try {
        input.value = sessionStorage.getItem("sluice.draft") || "";
    } catch {
        // nothing to restore
    }
    grow();
}
input.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !e.altKey) {
        e.preventDefault();
        if (!chat.isRunning)
            submit(input.value);
    }
    if (e.key === "ArrowUp" && !input.value && !e.altKey)
        chat.editLast();
});

const settingsButton = iconButton("gear", "Settings (Alt+S)", openSettings);
function drawSettings() {
    const n = countChanged();
    settingsButton.classList.toggle("marked", n > 0);
    byId("hint").textContent = n ? `${n} setting${n === 1 ? "" : "s"} changed` : "";
}
function openSettings() {
    showSettings({
        conversation: chat.conversation, own,
        onSetting() {
            drawSettings();
            chat.keep();
        },
        async changed(all) {
            if (all) {
                chat.drop();
                newConversation();
            }
            await list.refresh();
        },
    });
}
byId("composer-left").append(settingsButton);

/* ---- frame ---- */

const scrim = byId("scrim");
function openSide() {
    app.classList.add("side-open");
    scrim.hidden = false;
    byId("side").querySelector("button, input").focus();
}
function closeSide() {
    app.classList.remove("side-open");
    scrim.hidden = true;
}
const isNarrow = () => matchMedia("(max-width: 1179px)").matches;
function toggleSide() {
    if (isNarrow()) {
        if (app.classList.contains("side-open"))
            closeSide();
        else
            openSide();
    } else {
        store.setSetting("side", app.classList.toggle("side-hidden") ? "hidden" : undefined);
    }
}
scrim.addEventListener("click", closeSide);
function togglePlan() {
    if (matchMedia("(max-width: 899px)").matches)
        byId("plan-fold").click();
    else
        store.setSetting("plan", app.classList.toggle("plan-hidden") ? "hidden" : undefined);
}

byId("top-left").append(iconButton("menu", "Conversations (Alt+B)", toggleSide));
byId("top-right").append(iconButton("plus", "New conversation (Alt+N)", newConversation, ".only-narrow"),
                         iconButton("gauge", "Memory plan (Alt+M)", togglePlan, ".only-wide"));
byId("side-close").append(iconButton("close", "Close", closeSide, ".only-narrow"));
fill(byId("side-foot"), themeSwitch(), iconButton("keys", "Keyboard shortcuts (?)", showShortcuts));
if (store.setting("side", "") === "hidden")
    app.classList.add("side-hidden");
if (store.setting("plan", "") === "hidden")
    app.classList.add("plan-hidden");

const step = (by) => {
    const id = list.neighbour(by);
    if (id)
        go(id);
};
listen({
    escape() {
        if (app.classList.contains("side-open"))
            closeSide();
        else if (!chat.stop())
            return false;
        return true;
    },
    focus: () => input.focus(),
    search() {
        if (isNarrow())
            openSide();
        app.classList.remove("side-hidden");
        byId("search").focus();
    },
    new: newConversation,
    edit: () => chat.editLast(),
    again: () => chat.againLast(),
    copy: () => chat.copyLast(),
    previous: () => step(-1),
    next: () => step(1),
    side: toggleSide,
    plan: togglePlan,
    settings: openSettings,
    theme: nextTheme,
    help: showShortcuts,
});

window.addEventListener("sluice-theme", () => memory.strip.recolor());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => memory.strip.recolor());

/* ---- the server ---- */

function drawEmpty() {
    emptyState(byId("empty"), memory.plan, submit);
}

let polled = -Infinity, polling = false;

/* The plan with its live use: every second and a half while something is computed, else now and then. */
async function poll() {
    if (polling)
        return;
    polling = true;
    polled = performance.now();
    try {
        const plan = await getJson("/api/v1/memory");
        const first = !memory.plan;
        memory.setPlan(plan);
        own = plan.sampling || null;
        if (plan.model)
            byId("model").textContent = `${plan.model.name} · context of ${plan.model.context.toLocaleString("en-US")} tokens`;
        if (first)
            drawEmpty();
    } catch (e) {
        if (e.kind === "key")
            needKey(e);
    }
    polling = false;
}

async function needKey(e) {
    if (keyAsked)
        return;
    keyAsked = true;
    if (await askKey(e.message)) {
        await poll();
        watcher.retry();
    }
    keyAsked = false;
}

const watcher = watch({
    status(s) {
        const before = memory.status;
        memory.setStatus(s);
        chat.tick(false);
        const ended = before && before.phase !== "idle" && s.phase === "idle";
        if (ended || performance.now() - polled > (s.phase === "idle" ? 20000 : 1500))
            poll();
    },
    state(state, wait, error) {
        clearInterval(countdown);
        if (state === "on") {
            if (isLost) {
                toast("Connected again.");
                chat.tick(true);
                poll();
            }
            isLost = false;
            if (connection) {
                connection = null;
                drawBanner();
            }
            return;
        }
        if (error.kind === "key") {
            connection = {text: "The server asks for a key."};
            drawBanner();
            needKey(error);
            return;
        }
        isLost = true;
        memory.lost();
        let left = wait;
        const tick = () => {
            const why = error.kind === "busy" ? "The server has no room for another watcher." : "Connection to the server lost.";
            connection = {text: left > 0 ? `${why} Next try in ${left} s.` : `${why} Trying…`};
            drawBanner();
            left--;
        };
        tick();
        countdown = setInterval(tick, 1000);
    },
});

/* ---- start ---- */

store.onOther(async (id) => {
    await list.refresh();
    if (id)
        await chat.reload(id);
});

async function start() {
    keepsNothing = !(await store.open());
    drawBanner();
    drawEmpty();
    drawSettings();
    restoreDraft();
    await list.refresh();
    const wanted = /^#([0-9a-f]{32})$/.exec(location.hash);
    const id = wanted ? wanted[1] : store.setting("last", "");
    if (!id || !(await go(id)))
        newConversation();
    await poll();
    document.documentElement.classList.add("ready");
}
start();
