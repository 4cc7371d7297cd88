/* Shortcuts: one table, from which both the handler and the list for people are made. */
import {el} from "./dom.js";

const mac = /Mac|iPhone|iPad/.test(navigator.platform || "");

/* code: KeyboardEvent.code with Alt, so that layouts and dead keys do not matter; key: KeyboardEvent.key without. */
export const shortcuts = [
    {keys: ["Enter"], what: "Send the message"},
    {keys: ["Shift", "Enter"], what: "Start a new line"},
    {keys: ["Esc"], what: "Stop the answer, or close what is open", name: "escape"},
    {keys: ["/"], what: "Go to the message field", name: "focus", key: "/"},
    {keys: [mac ? "⌘" : "Ctrl", "K"], what: "Search conversations", name: "search"},
    {keys: ["Alt", "N"], what: "New conversation", name: "new", code: "KeyN"},
    {keys: ["Alt", "E"], what: "Edit the last message", name: "edit", code: "KeyE"},
    {keys: ["Alt", "R"], what: "Answer again", name: "again", code: "KeyR"},
    {keys: ["Alt", "C"], what: "Copy the last answer", name: "copy", code: "KeyC"},
    {keys: ["Alt", "↑"], what: "Previous conversation", name: "previous", code: "ArrowUp"},
    {keys: ["Alt", "↓"], what: "Next conversation", name: "next", code: "ArrowDown"},
    {keys: ["Alt", "B"], what: "Show or hide the conversations", name: "side", code: "KeyB"},
    {keys: ["Alt", "M"], what: "Show or hide the memory plan", name: "plan", code: "KeyM"},
    {keys: ["Alt", "S"], what: "Settings", name: "settings", code: "KeyS"},
    {keys: ["Alt", "T"], what: "Next theme", name: "theme", code: "KeyT"},
    {keys: ["?"], what: "This list", name: "help", key: "?"},
];

const isField = (node) => node && (node.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName));

/* actions: by the names above. */
export function listen(actions) {
    document.addEventListener("keydown", (e) => {
        if (e.isComposing || e.defaultPrevented)
            return;
        const inDialog = document.querySelector("dialog[open]");
        let name = null;
        if (e.key === "Escape" && !inDialog)
            name = "escape";
        else if ((e.ctrlKey || e.metaKey) && !e.altKey && e.code === "KeyK")
            name = "search";
        else if (e.altKey && !e.ctrlKey && !e.metaKey)
            name = (shortcuts.find((s) => s.code === e.code) || {}).name;
        else if (!e.ctrlKey && !e.metaKey && !e.altKey && !isField(e.target))
            name = (shortcuts.find((s) => s.key === e.key) || {}).name;
        if (!name || inDialog || !actions[name])
            return;
        if (actions[name](e) !== false)
            e.preventDefault();
    });
}

export function shortcutTable() {
    return el("dl.shortcuts", {}, shortcuts.map((s) =>
        el("div", {}, el("dt", {}, s.what), el("dd", {}, s.keys.map((k) => el("kbd", {}, k))))));
}
