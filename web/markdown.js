/* Markdown to DOM, for text that nobody vouches for and that is still growing.
 *
 * There is no HTML: what looks like it is text. Links lead to http, https and mailto only. Nesting ends at a depth,
 * long runs at a length, and every search ahead at a distance, so that time stays linear in the text.
 *
 * While an answer streams, only its last block can change: those before it are kept as they are in the page. */
import {el, icon, copyText} from "./dom.js";
import {highlight} from "./highlight.js";

const DEPTH_MAX = 8;       // of quotes and lists; deeper marks stay text
const INLINE_MAX = 30000;  // characters of one paragraph whose marks are looked at
const AHEAD_MAX = 1500;    // how far a mark looks for its other end
const PAIR_BACK_MAX = 40;  // how many marks an emphasis looks back
const COLUMNS_MAX = 40;
const ROWS_MAX = 2000;

/* ---- blocks ------------------------------------------------------------------------------------ */

const fence = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const heading = /^ {0,3}(#{1,6})(?:\s+(.*))?$/;
const item = /^( {0,9})([-*+]|\d{1,9}[.)])(\s+|$)/;
const quote = /^ {0,3}> ?/;

function isRule(line) {
    const marks = line.length < 200 ? line.replace(/\s/g, "") : "";
    return marks.length >= 3 && /^(-+|\*+|_+)$/.test(marks);
}

const indentOf = (line) => line.length - line.trimStart().length;
const isBlank = (line) => line.trim() === "";

// The cells of a table's row; a bar behind a backslash, or in code, is no border.
function cells(line) {
    const out = [];
    let cell = "", inCode = false;
    const text = line.trim();
    for (let i = text[0] === "|" ? 1 : 0; i < text.length; i++) {
        if (text[i] === "\\" && text[i + 1] === "|") {
            cell += "|";
            i++;
        } else if (text[i] === "|" && !inCode) {
            out.push(cell.trim());
            cell = "";
        } else {
            if (text[i] === "`")
                inCode = !inCode;
            cell += text[i];
        }
    }
    if (cell.trim() || !text.endsWith("|"))
        out.push(cell.trim());
    return out.slice(0, COLUMNS_MAX);
}

// Alignments of a table's second line, or null where it is none.
function tableRule(line) {
    if (line === undefined || line.length > 1000 || !line.includes("-") || !/^[\s|:-]+$/.test(line))
        return null;
    const parts = cells(line);
    if (!parts.every((p) => /^:?-+:?$/.test(p)))
        return null;
    return parts.map((p) => (p.endsWith(":") ? (p[0] === ":" ? "center" : "right") : ""));
}

function isTable(lines, i) {
    if (!lines[i].includes("|") || lines[i].length > 20000)
        return false;
    const rule = tableRule(lines[i + 1]);
    return rule !== null && rule.length === cells(lines[i]).length;
}

// Whether a line begins a block that ends a paragraph before it.
function interrupts(lines, i) {
    const line = lines[i];
    const m = item.exec(line);
    return fence.test(line) || heading.test(line) || quote.test(line) || isRule(line) || isTable(lines, i) ||
           mathEnd(line) !== null || (m !== null && !isBlank(line.slice(m[0].length)) && /^([-*+]|1[.)])/.test(m[2]));
}

function mathEnd(line) {
    const text = line.trim();
    if (text.startsWith("$$") && (text === "$$" || !text.slice(2).includes("$$") || text.endsWith("$$")))
        return "$$";
    return text.startsWith("\\[") ? "\\]" : null;
}

function readFence(lines, i, m) {
    const [, indent, mark, info] = m;
    const code = [];
    let j = i + 1, closed = false;
    for (; j < lines.length && !closed; j++) {
        const text = lines[j].trim();
        closed = text.length >= mark.length && text[0] === mark[0] && indentOf(lines[j]) < 4 &&
                 text === mark[0].repeat(text.length);
        if (!closed)
            code.push(lines[j].slice(Math.min(indent.length, indentOf(lines[j]))));
    }
    return [{type: "code", language: info.trim().split(/\s+/)[0].slice(0, 40), text: code.join("\n"), closed}, j];
}

function readMath(lines, i, end) {
    const out = [];
    let j = i;
    for (; j < lines.length; j++) {
        const text = lines[j].trim(), inner = j === i ? text.slice(2) : text;
        if (inner.endsWith(end) && (j > i || text.length > 2)) {
            out.push(inner.slice(0, -2));
            j++;
            break;
        }
        out.push(inner);
    }
    return [{type: "math", text: out.join("\n").trim()}, j];
}

function readQuote(lines, i, depth) {
    const inner = [];
    let j = i;
    for (; j < lines.length; j++) {
        if (quote.test(lines[j]))
            inner.push(lines[j].replace(quote, ""));
        else if (isBlank(lines[j]) || interrupts(lines, j) || isBlank(inner[inner.length - 1]))
            break;
        else
            inner.push(lines[j]); // a paragraph may go on without the mark
    }
    return [{type: "quote", blocks: blocks(inner, depth + 1).blocks}, j];
}

function readList(lines, i, depth) {
    const first = item.exec(lines[i]);
    const ordered = /\d/.test(first[2]), kind = first[2].at(-1), base = first[1].length;
    const list = {type: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1, items: [], loose: false};
    let j = i, blank = false;
    while (j < lines.length) {
        const m = item.exec(lines[j]);
        if (!m || isRule(lines[j]) || m[2].at(-1) !== kind || m[1].length > base + 3 || m[1].length < base - 3)
            break;
        list.loose ||= blank;
        const space = m[3].length > 4 || m[3] === "" ? 1 : m[3].length;
        const indent = m[1].length + m[2].length + space;
        const inner = [lines[j].slice(indent)];
        for (j++, blank = false; j < lines.length; j++) {
            if (isBlank(lines[j])) {
                inner.push("");
                blank = true;
            } else if (indentOf(lines[j]) >= Math.min(indent, base + 2)) {
                list.loose ||= blank && indentOf(lines[j]) < indent + 4 && !item.test(lines[j]);
                inner.push(lines[j].slice(Math.min(indent, indentOf(lines[j]))));
                blank = false;
            } else if (!blank && !interrupts(lines, j) && !item.test(lines[j])) {
                inner.push(lines[j].trimStart());
            } else {
                break;
            }
        }
        list.items.push(inner);
    }
    list.items = list.items.map((inner) => {
        const task = /^\[([ xX])\]\s+/.exec(inner[0]);
        if (task)
            inner[0] = inner[0].slice(task[0].length);
        return {task: task ? task[1] !== " " : null, blocks: blocks(inner, depth + 1).blocks};
    });
    return [list, j];
}

function readTable(lines, i) {
    const table = {type: "table", align: tableRule(lines[i + 1]), head: cells(lines[i]), rows: []};
    let j = i + 2;
    for (; j < lines.length && !isBlank(lines[j]) && lines[j].includes("|") && table.rows.length < ROWS_MAX; j++)
        table.rows.push(cells(lines[j]));
    return [table, j];
}

function readParagraph(lines, i) {
    const text = [lines[i].trimStart()];
    let j = i + 1;
    for (; j < lines.length && !isBlank(lines[j]); j++) {
        const under = /^ {0,3}(=+|-+)\s*$/.exec(lines[j]);
        if (under)
            return [{type: "heading", level: under[1][0] === "=" ? 1 : 2, text: text.join("\n")}, j + 1];
        if (interrupts(lines, j))
            break;
        text.push(lines[j].trimStart());
    }
    return [{type: "paragraph", text: text.join("\n")}, j];
}

function readBlock(lines, i, depth) {
    const line = lines[i];
    let m;
    if ((m = fence.exec(line)))
        return readFence(lines, i, m);
    if ((m = heading.exec(line)))
        return [{type: "heading", level: m[1].length, text: (m[2] || "").replace(/\s#+\s*$/, "")}, i + 1];
    if (isRule(line))
        return [{type: "rule"}, i + 1];
    const end = mathEnd(line);
    if (end)
        return readMath(lines, i, end);
    if (depth < DEPTH_MAX && quote.test(line))
        return readQuote(lines, i, depth);
    if (depth < DEPTH_MAX && item.test(line))
        return readList(lines, i, depth);
    if (isTable(lines, i))
        return readTable(lines, i);
    if (/^( {4}|\t)/.test(line)) {
        let j = i;
        const code = [];
        for (; j < lines.length && (/^( {4}|\t)/.test(lines[j]) || (isBlank(lines[j]) && j + 1 < lines.length)); j++)
            code.push(lines[j].replace(/^( {4}|\t)/, ""));
        return [{type: "code", language: "", text: code.join("\n").trimEnd(), closed: true}, j];
    }
    return readParagraph(lines, i);
}

/* {blocks, last}: last is the line with which the last block begins. */
function blocks(lines, depth) {
    const out = [];
    let i = 0, last = 0;
    while (i < lines.length) {
        if (isBlank(lines[i])) {
            i++;
            continue;
        }
        last = i;
        const [block, next] = readBlock(lines, i, depth);
        out.push(block);
        i = next;
    }
    return {blocks: out, last};
}

/* ---- what stands in a line -------------------------------------------------------------------- */

export function safeLink(text) {
    try {
        const url = new URL(text);
        return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

function link(href, fillIn) {
    const a = el("a", {href, target: "_blank", rel: "noopener noreferrer nofollow"});
    fillIn(a);
    return a;
}

const punctuation = /[!-/:-@[-`{-~]/;
const bare = /https?:\/\/[^\s<>"'`\\]+/y;
const target = /^\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*"|\s+'[^']*')?\s*\)/;

// Where the bracket that opens at i closes, or -1.
function bracketEnd(text, i) {
    let depth = 0;
    for (let j = i; j < text.length && j < i + AHEAD_MAX; j++) {
        if (text[j] === "\\")
            j++;
        else if (text[j] === "[")
            depth++;
        else if (text[j] === "]" && --depth === 0)
            return j;
    }
    return -1;
}

// A bare address without what ends the sentence around it.
function trimAddress(url) {
    let end = url.length;
    while (end && (/[.,:;!?*_~\]]/.test(url[end - 1]) || (url[end - 1] === ")" && !url.slice(0, end).includes("("))))
        end--;
    return url.slice(0, end);
}

function mathAt(text, i) {
    const near = text.slice(i, i + AHEAD_MAX);
    if (near.startsWith("\\(")) {
        const end = near.indexOf("\\)", 2);
        return end < 0 ? null : [near.slice(2, end), end + 2];
    }
    if (near[0] !== "$" || !near[1] || /[\s$]/.test(near[1]))
        return null;
    const end = near.indexOf("$", 1);
    if (end < 2 || /\s/.test(near[end - 1]) || /\d/.test(near[end + 1] || "") || near.slice(0, end).includes("\n"))
        return null;
    return [near.slice(1, end), end + 1];
}

/* Append the text with its marks to parent. */
function inline(parent, text, depth = 0, links = true) {
    if (text.length > INLINE_MAX || depth > 4) {
        parent.append(text);
        return;
    }
    const marks = [];        // of emphasis, in order
    const noEnd = new Map(); // lengths of backtick runs that have no other end
    let i = 0, plain = "";
    const flush = () => {
        if (plain)
            parent.append(plain);
        plain = "";
    };
    const push = (node, n) => {
        flush();
        parent.append(node);
        i += n;
    };
    while (i < text.length) {
        const ch = text[i];
        if (ch === "\n") {
            plain = plain.replace(/ +$/, "");
            push(el("br"), 1);
        } else if (ch === "\\" && text[i + 1] === "\n") {
            push(el("br"), 2);
        } else if (ch === "`") {
            let n = 1;
            while (text[i + n] === "`")
                n++;
            const end = noEnd.has(n) ? -1 : closingRun(text, i + n, n);
            if (end < 0) {
                noEnd.set(n, true);
                plain += text.slice(i, i + n);
                i += n;
            } else {
                let code = text.slice(i + n, end).replace(/\n/g, " ");
                if (code.startsWith(" ") && code.endsWith(" ") && code.trim())
                    code = code.slice(1, -1);
                push(el("code", {}, code), end + n - i);
            }
        } else if (ch === "$" || (ch === "\\" && text[i + 1] === "(")) {
            const m = mathAt(text, i);
            if (m) {
                push(el("span.math", {}, m[0]), m[1]);
            } else {
                plain += ch;
                i++;
            }
        } else if (ch === "\\" && punctuation.test(text[i + 1] || "")) {
            plain += text[i + 1];
            i += 2;
        } else if (links && (ch === "[" || (ch === "!" && text[i + 1] === "["))) {
            if (!pushLink(text, i, depth, push)) {
                plain += ch;
                i++;
            }
        } else if (links && (ch === "<" || ch === "h") && pushAddress(text, i, push)) {
            // done
        } else if (ch === "*" || ch === "_" || ch === "~") {
            let n = 1;
            while (text[i + n] === ch)
                n++;
            const before = text[i - 1] || " ", after = text[i + n] || " ";
            const left = !/\s/.test(after), right = !/\s/.test(before);
            const inWord = ch === "_" && /\w/.test(before) && /\w/.test(after);
            if (n > 3 || inWord || (!left && !right) || (ch === "~" && n !== 2)) {
                plain += text.slice(i, i + n);
                i += n;
            } else {
                const node = document.createTextNode(text.slice(i, i + n));
                push(node, n);
                marks.push({ch, n, node, opens: left, closes: right});
            }
        } else {
            plain += ch;
            i++;
        }
    }
    flush();
    emphasize(marks);
}

function closingRun(text, from, n) {
    const most = Math.min(text.length, from + 4 * AHEAD_MAX);
    for (let j = text.indexOf("`", from); j >= 0 && j < most; j = text.indexOf("`", j)) {
        let k = j;
        while (text[k] === "`")
            k++;
        if (k - j === n)
            return j;
        j = k;
    }
    return -1;
}

function pushLink(text, i, depth, push) {
    const open = text[i] === "!" ? i + 1 : i, close = bracketEnd(text, open);
    if (close < 0 || text[close + 1] !== "(")
        return false;
    const m = target.exec(text.slice(close + 1, close + 1 + AHEAD_MAX));
    const href = m && safeLink(m[1]);
    if (!href)
        return false;
    const label = text.slice(open + 1, close);
    // A picture is not loaded from elsewhere: it is a link to it.
    push(link(href, (a) => inline(a, label || href, depth + 1, false)), close + 1 + m[0].length - i);
    return true;
}

function pushAddress(text, i, push) {
    const angled = text[i] === "<";
    bare.lastIndex = angled ? i + 1 : i;
    const m = bare.exec(text);
    if (!m || (!angled && /\w/.test(text[i - 1] || " ")))
        return false;
    if (angled && text[i + 1 + m[0].length] !== ">")
        return false;
    const url = angled ? m[0] : trimAddress(m[0]);
    const href = safeLink(url);
    if (!href)
        return false;
    push(link(href, (a) => a.append(url)), angled ? url.length + 2 : url.length);
    return true;
}

const tags = {"*1": "em", "_1": "em", "*2": "strong", "_2": "strong", "~2": "del"};

// Pair the marks: each that can close takes the nearest one before it that can open and has as many left.
function emphasize(marks) {
    const stack = [];
    for (const mark of marks) {
        while (mark.closes && mark.n > 0) {
            let k = stack.length - 1;
            const least = Math.max(0, stack.length - PAIR_BACK_MAX);
            while (k >= least && stack[k].ch !== mark.ch)
                k--;
            if (k < least)
                break;
            const open = stack[k];
            const n = open.n >= 2 && mark.n >= 2 ? 2 : mark.ch === "~" ? 0 : 1;
            if (n === 0)
                break;
            const node = document.createElement(tags[mark.ch + n]);
            while (open.node.nextSibling && open.node.nextSibling !== mark.node)
                node.append(open.node.nextSibling);
            open.node.after(node);
            for (const m of [open, mark]) {
                m.n -= n;
                m.node.data = m.ch.repeat(m.n);
            }
            stack.length = open.n ? k + 1 : k;
        }
        if (mark.opens && mark.n > 0)
            stack.push(mark);
    }
}

/* ---- to the page ------------------------------------------------------------------------------- */

function codeBlock(block) {
    const code = el("code");
    highlight(code, block.text, block.language);
    const button = el("button.copy", {type: "button", "aria-label": "Copy code", title: "Copy"}, icon("copy"));
    button.addEventListener("click", async () => {
        await copyText(block.text);
        button.replaceChildren(icon("check"));
        setTimeout(() => button.replaceChildren(icon("copy")), 1500);
    });
    return el("figure.code", {}, el("figcaption", {}, el("span", {}, block.language || "text"), button),
              el("pre", {tabIndex: 0, role: "region", "aria-label": `Code, ${block.language || "text"}`}, code));
}

function table(block) {
    const row = (tag, list) => el("tr", {}, block.head.map((_, i) => {
        const cell = el(tag + (block.align[i] ? `.${block.align[i]}` : ""));
        inline(cell, list[i] || "");
        return cell;
    }));
    return el("div.table", {tabIndex: 0, role: "region", "aria-label": "Table"},
              el("table", {}, el("thead", {}, row("th", block.head)),
                 el("tbody", {}, block.rows.map((r) => row("td", r)))));
}

function list(block) {
    const node = el(block.ordered ? "ol" : "ul");
    if (block.ordered && block.start !== 1)
        node.start = block.start;
    for (const it of block.items) {
        const li = el("li");
        if (it.task !== null) {
            li.className = "task";
            li.append(el("span.box", {role: "img", "aria-label": it.task ? "done" : "open"}, it.task ? "☑" : "☐"));
        }
        for (const b of it.blocks) {
            // The text of a tight item stands in the item itself.
            if (b.type === "paragraph" && !block.loose)
                inline(li, b.text);
            else
                li.append(toNode(b));
        }
        node.append(li);
    }
    return node;
}

function toNode(block) {
    let node;
    switch (block.type) {
    case "code":
        return codeBlock(block);
    case "table":
        return table(block);
    case "list":
        return list(block);
    case "rule":
        return el("hr");
    case "math":
        return el("pre.math", {}, block.text);
    case "quote":
        return el("blockquote", {}, block.blocks.map(toNode));
    case "heading":
        // The page has its own first and second levels.
        node = el(`h${Math.min(6, block.level + 2)}`);
        break;
    default:
        node = el("p");
    }
    inline(node, block.text);
    return node;
}

/* A renderer that owns the children of `box`: update(text) as often as the text grows. */
export function renderer(box) {
    let before = "", settled = 0, nSettled = 0;
    return {
        update(text) {
            if (!text.startsWith(before.slice(0, settled)))
                settled = nSettled = 0; // not the same text any more
            before = text;
            const lines = text.slice(settled).replace(/\r\n?/g, "\n").split("\n");
            const {blocks: found, last} = blocks(lines, 0);
            while (box.childNodes.length > nSettled)
                box.lastChild.remove();
            for (const block of found)
                box.append(toNode(block));
            if (found.length > 1 && !text.includes("\r")) {
                for (let i = 0; i < last; i++)
                    settled += lines[i].length + 1;
                nSettled += found.length - 1;
            }
        },
    };
}

export function render(box, text) {
    renderer(box).update(text);
}
