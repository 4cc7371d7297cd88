/* The list of conversations: search, rename, delete. */
import {el, fill, byId, iconButton, icon, when, toast} from "./dom.js";
import * as store from "./store.js";
import {download} from "./dialogs.js";

const SHOWN = 200;

/* on.open(id), on.removed(id), on.renamed(id, title), on.restored() */
export function createList(on) {
    const box = byId("list"), field = byId("search");
    let heads = [], selected = null, found = null, shown = SHOWN, ticket = 0, running = new Set();

    async function refresh() {
        heads = await store.heads();
        draw();
    }

    const titleOf = (h) => h.title || "New conversation";

    function visible() {
        return found ? heads.filter((h) => found.has(h.id)) : heads;
    }

    function row(h) {
        const open = el("button.open", {type: "button", title: titleOf(h), "aria-current": h.id === selected ? "page" : undefined,
                                        onclick: () => on.open(h.id),
                                        onkeydown: (e) => {
                                            if (e.key === "F2")
                                                rename(h, item);
                                            else if (e.key === "Delete")
                                                remove(h);
                                        }},
                        el("span", {}, titleOf(h)), running.has(h.id) ? el("i.pulse", {role: "img", "aria-label": "answering"}) : "");
        const item = el("li.entry", {data: {id: h.id}}, open,
                        el("span.entry-tools", {},
                           iconButton("edit", `Rename ${titleOf(h)}`, () => rename(h, item), ".small"),
                           iconButton("out", `Export ${titleOf(h)}`, async () => {
                               const c = await store.load(h.id);
                               if (c)
                                   download(`sluice-${titleOf(h).replace(/[^\w-]+/g, "-").slice(0, 40)}.json`, store.wrap([c]));
                           }, ".small"),
                           iconButton("trash", `Delete ${titleOf(h)}`, () => remove(h), ".small")));
        return item;
    }

    function draw() {
        const list = visible(), parts = [];
        let label = null, ul = null;
        for (const h of list.slice(0, shown)) {
            const day = when(h.updated);
            if (day !== label) {
                label = day;
                ul = el("ul", {"aria-label": day});
                parts.push(el("h2", {}, day), ul);
            }
            ul.append(row(h));
        }
        if (!list.length)
            parts.push(el("p.none", {}, found ? "Nothing found." : "Conversations appear here. They stay in this browser."));
        if (list.length > shown)
            parts.push(el("button.text-button", {type: "button", onclick: () => {
                shown += SHOWN;
                draw();
            }}, `${list.length - shown} more`));
        fill(box, parts);
    }

    function rename(h, item) {
        const input = el("input", {value: h.title, maxLength: 200, "aria-label": "New title"});
        let over = false;
        const end = async (keep) => {
            if (over)
                return;
            over = true;
            const title = input.value.trim();
            if (keep && title && title !== h.title) {
                await on.renamed(h.id, title);
                await refresh();
            } else {
                draw();
            }
            const button = box.querySelector(`[data-id="${h.id}"] .open`);
            if (button)
                button.focus();
        };
        input.addEventListener("keydown", (e) => {
            if (e.key === "Enter")
                end(true);
            if (e.key === "Escape") {
                e.stopPropagation();
                e.preventDefault();
                end(false);
            }
        });
        input.addEventListener("blur", () => end(true));
        fill(item, input);
        input.focus();
        input.select();
    }

    async function remove(h) {
        const c = await store.load(h.id);
        on.removed(h.id);
        await store.remove(h.id);
        await refresh();
        toast(`“${titleOf(h).slice(0, 40)}” deleted.`, "Undo", async () => {
            await store.save(c);
            await refresh();
            on.restored(h.id);
        });
    }

    async function find() {
        const words = field.value.trim(), mine = ++ticket;
        if (!words) {
            found = null;
            draw();
            return;
        }
        const result = await store.search(words, () => mine !== ticket);
        if (mine !== ticket)
            return;
        found = result;
        shown = SHOWN;
        draw();
    }
    let timer = 0;
    field.addEventListener("input", () => {
        clearTimeout(timer);
        timer = setTimeout(find, 150);
    });
    field.addEventListener("keydown", (e) => {
        if (e.key === "Escape" && field.value) {
            e.preventDefault();
            field.value = "";
            find();
        }
        if (e.key === "Enter" && visible().length)
            on.open(visible()[0].id);
        if (e.key === "ArrowDown" && box.querySelector(".open"))
            box.querySelector(".open").focus();
    });
    box.addEventListener("keydown", (e) => {
        if (e.altKey || (e.key !== "ArrowDown" && e.key !== "ArrowUp") || !e.target.classList.contains("open"))
            return;
        const all = Array.from(box.querySelectorAll(".open"));
        const next = all[all.indexOf(e.target) + (e.key === "ArrowDown" ? 1 : -1)];
        (next || field).focus();
        e.preventDefault();
    });

    const button = byId("new");
    fill(button, icon("plus"), "New conversation");

    return {
        refresh,
        select(id) {
            selected = id;
            draw();
        },
        setRunning(ids) {
            running = ids;
            draw();
        },
        /* The id beside the selected one, in the list's order. */
        neighbour(step) {
            const list = visible(), i = list.findIndex((h) => h.id === selected);
            const next = list[i + step] || (i < 0 ? list[0] : null);
            return next ? next.id : null;
        },
    };
}
