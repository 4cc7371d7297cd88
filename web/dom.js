/* Building the page: every node comes from here, and data reaches it as text or as a property, never as HTML. */

/* el("button.primary", {type: "button", onclick: f, "aria-label": "Send"}, "Send", icon("send")) */
export function el(what, props, ...children) {
    const [tag, ...classes] = what.split(".");
    const node = document.createElement(tag);
    if (classes.length)
        node.className = classes.join(" ");
    for (const [name, value] of Object.entries(props || {})) {
        if (value === undefined || value === null || value === false)
            continue;
        if (name.startsWith("on"))
            node.addEventListener(name.slice(2), value);
        else if (name === "data")
            Object.assign(node.dataset, value);
        else if (name in node && !name.includes("-") && name !== "list" && name !== "role")
            node[name] = value;
        else
            node.setAttribute(name, value === true ? "" : value);
    }
    add(node, children);
    return node;
}

export function add(node, children) {
    for (const child of children.flat()) {
        if (child !== null && child !== undefined && child !== false)
            node.append(child);
    }
    return node;
}

export function fill(node, ...children) {
    node.replaceChildren();
    return add(node, children);
}

export const byId = (id) => document.getElementById(id);

/* ---- icons: strokes on a 24 by 24 grid ---- */

const paths = {
    menu: "M4 7h16M4 12h16M4 17h10",
    plus: "M12 5v14M5 12h14",
    search: "M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14ZM20 20l-4-4",
    send: "M12 19V5M6 11l6-6 6 6",
    stop: "M7 7h10v10H7z",
    copy: "M9 9h10v11H9zM5 15V4h10",
    check: "M5 13l4 4L19 7",
    edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
    again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
    trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
    gear: "M4 7h10M18 7h2M4 17h2M10 17h10M16 4v6M8 14v6",
    sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4",
    moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5Z",
    auto: "M12 4a8 8 0 1 0 0 16ZM12 4a8 8 0 0 1 0 16",
    keys: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
    chevron: "M8 10l4 4 4-4",
    down: "M12 5v14M6 13l6 6 6-6",
    tool: "M14 7a4 4 0 0 1 5-4l-2.5 2.5 2 2L21 5a4 4 0 0 1-5 5l-8 8-2.5-2.5Z",
    more: "M6 12h.01M12 12h.01M18 12h.01",
    close: "M6 6l12 12M18 6 6 18",
    out: "M12 4v11M7 10l5 5 5-5M5 20h14",
    in: "M12 15V4M7 9l5-5 5 5M5 20h14",
    alert: "M12 4 2.5 20h19ZM12 10v4M12 17h.01",
    gauge: "M4 17a8 8 0 1 1 16 0M12 17l4-5",
};

const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", paths[name]);
    svg.append(path);
    return svg;
}

/* A button that shows an icon; its label is read out and shown when it is pointed at. */
export function iconButton(name, label, onclick, classes = "") {
    return el("button.icon-button" + classes, {type: "button", title: label, "aria-label": label, onclick},
              icon(name));
}

/* ---- numbers for people ---- */

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

/* "18.2 GiB" */
export function bytes(n) {
    let i = 0;
    while (n >= 1024 && i < units.length - 1) {
        n /= 1024;
        i++;
    }
    return `${i === 0 ? Math.round(n) : n < 100 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function count(n) {
    return Math.round(n).toLocaleString("en-US");
}

export function percent(share) {
    return share > 0.995 && share < 1 ? "99%+" : `${Math.round(share * 100)}%`;
}

export function rate(n) {
    return n >= 100 ? Math.round(n).toString() : n >= 10 ? n.toFixed(1) : n.toFixed(2);
}

export function seconds(s) {
    if (s < 0.95)
        return `${Math.max(1, Math.round(s * 1000))} ms`;
    if (s < 10)
        return `${s.toFixed(1)} s`;
    if (s < 60)
        return `${Math.round(s)} s`;
    return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

export function when(ms) {
    const day = 86400000;
    const today = new Date().setHours(0, 0, 0, 0);
    const date = new Date(ms);
    if (ms >= today)
        return "Today";
    if (ms >= today - day)
        return "Yesterday";
    if (ms >= today - 6 * day)
        return "This week";
    return date.toLocaleDateString("en-US", {month: "long", year: "numeric"});
}

/* ---- what is said to everybody ---- */

/* For screen readers: said once, without taking the focus. */
export function announce(text) {
    const node = byId("announcer");
    node.textContent = "";
    setTimeout(() => (node.textContent = text), 50);
}

/* A short message at the edge, with one thing to do about it. */
export function toast(text, action, run) {
    const box = el("div.toast", {role: "status"}, el("span", {}, text));
    const close = () => box.remove();
    if (action)
        box.append(el("button.text-button", {type: "button", onclick: () => (close(), run())}, action));
    byId("toasts").append(box);
    while (byId("toasts").children.length > 3)
        byId("toasts").firstChild.remove();
    setTimeout(close, action ? 9000 : 4500);
}

export async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        // Without a secure origin there is no clipboard: the old way.
        const area = el("textarea.offscreen", {value: text});
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
    }
}
