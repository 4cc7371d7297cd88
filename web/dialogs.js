/* Dialogs: each is made when it opens and removed when it closes. */
import {el, iconButton, toast} from "./dom.js";
import {setKey} from "./api.js";
import {shortcutTable} from "./keys.js";
import {settingsForm, themeSwitch} from "./settings.js";
import * as store from "./store.js";

/* Open a dialog; onclose is called with what close(value) was given. */
export function dialog(title, content, {classes = "", onclose} = {}) {
    const box = el("dialog" + classes, {"aria-labelledby": "dialog-title"});
    const close = (value) => {
        box.returned = value;
        box.close();
    };
    box.append(el("div.dialog-head", {}, el("h2", {id: "dialog-title", tabIndex: -1, autofocus: true}, title),
                  iconButton("close", "Close", () => close())), content(close));
    box.addEventListener("close", () => {
        box.remove();
        if (onclose)
            onclose(box.returned);
    });
    box.addEventListener("click", (e) => {
        if (e.target === box)
            close();
    });
    document.body.append(box);
    box.showModal();
    return close;
}

export function showShortcuts() {
    dialog("Keyboard", () => shortcutTable());
}

export function askKey(message) {
    return new Promise((done) => {
        dialog("This server asks for a key", (close) => {
            const key = el("input", {type: "password", id: "key", autocomplete: "off", required: true});
            const remember = el("input", {type: "checkbox"});
            return el("form.stack", {method: "dialog", onsubmit: (e) => {
                e.preventDefault();
                setKey(key.value.trim(), remember.checked);
                close(true);
            }}, el("p", {}, message), el("label", {htmlFor: "key"}, "Key"), key,
            el("label.check", {}, remember, " Keep it in this browser (else until the tab is closed)"),
            el("div.dialog-foot", {}, el("button.primary", {type: "submit"}, "Use this key")));
        }, {onclose: (value) => done(value === true)});
    });
}

function confirmDelete(text, run) {
    dialog("Are you sure?", (close) => el("div.stack", {}, el("p", {}, text),
        el("div.dialog-foot", {}, el("button.plain", {type: "button", onclick: () => close()}, "Cancel"),
           el("button.danger", {type: "button", onclick: () => (close(), run())}, "Delete"))));
}

export function download(name, text) {
    const url = URL.createObjectURL(new Blob([text], {type: "application/json"}));
    const a = el("a", {href: url, download: name});
    document.body.append(a);
    a.click();
    a.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const IMPORT_BYTES_MAX = 256 << 20;

async function importFile(file, changed) {
    try {
        if (file.size > IMPORT_BYTES_MAX)
            throw new Error("This file is larger than 256 MiB.");
        const found = store.parseImport(await file.text());
        const n = await store.importAll(found);
        toast(n === found.length ? `${n} conversation${n === 1 ? "" : "s"} imported.`
                                 : `${n} imported, ${found.length - n} were there already.`);
        changed();
    } catch (e) {
        toast(e.name === "QuotaExceededError" ? "The browser's storage is full: delete conversations, then import again."
                                              : e.message);
    }
}

function dataSection(changed) {
    const file = el("input.offscreen", {type: "file", accept: "application/json,.json", id: "import-file", tabIndex: -1,
                                        "aria-label": "File to import", onchange: () => {
        if (file.files[0])
            importFile(file.files[0], changed);
        file.value = "";
    }});
    return el("section", {}, el("h3", {}, "Conversations"),
        el("p.effect", {}, "They are kept in this browser and nowhere else."),
        el("div.row", {},
           el("button.plain", {type: "button", id: "export-all", onclick: async () =>
               download(`sluice-${new Date().toISOString().slice(0, 10)}.json`, await store.exportAll())}, "Export all"),
           el("button.plain", {type: "button", id: "import", onclick: () => file.click()}, "Import"),
           file,
           el("button.plain.danger-text", {type: "button", onclick: () =>
               confirmDelete("All conversations in this browser are deleted. This cannot be undone.", async () => {
                   changed(true);
                   await store.removeAll();
                   changed();
               })}, "Delete all")));
}

/* changed(): conversations were imported; changed(true): all are gone. */
export function showSettings({conversation, own, onSetting, changed}) {
    dialog("Settings", () => el("div", {}, settingsForm(conversation, own, onSetting),
        el("div.settings", {}, el("section", {}, el("h3", {}, "Appearance"), themeSwitch()), dataSection(changed))),
           {classes: ".wide"});
}
