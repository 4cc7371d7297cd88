/* Conversations, kept in the browser: heads (what the list shows) and bodies (the messages) in IndexedDB; settings in
 * localStorage. Where there is neither, everything lasts as long as the page, and the page says so. */

const NAME = "sluice", VERSION = 1;
const FORMAT = "sluice-conversations";
const MESSAGE_BYTES_MAX = 4 << 20, CONVERSATIONS_MAX = 20000, MESSAGES_MAX = 20000;

let db = null;
const memory = {heads: new Map(), bodies: new Map()};
const channel = "BroadcastChannel" in window ? new BroadcastChannel("sluice") : null;

/* Each step takes the database from the version before to this one. */
const migrations = {
    1(d) {
        d.createObjectStore("heads", {keyPath: "id"});
        d.createObjectStore("bodies", {keyPath: "id"});
    },
};

function promise(request) {
    return new Promise((yes, no) => {
        request.onsuccess = () => yes(request.result);
        request.onerror = () => no(request.error);
    });
}

/* True where conversations outlast the page. */
export async function open() {
    try {
        const request = indexedDB.open(NAME, VERSION);
        request.onupgradeneeded = (e) => {
            for (let v = e.oldVersion + 1; v <= VERSION; v++)
                migrations[v](request.result);
        };
        db = await promise(request);
        db.onversionchange = () => db.close();
        return true;
    } catch {
        db = null;
        return false;
    }
}

/* Called with the id of a conversation that another tab changed. */
export function onOther(run) {
    if (channel)
        channel.onmessage = (e) => run(e.data);
}

function tell(id) {
    if (channel)
        channel.postMessage(id);
}

function all(transaction) {
    return new Promise((yes, no) => {
        transaction.oncomplete = () => yes();
        transaction.onabort = transaction.onerror = () => no(transaction.error || new Error("the storage refused"));
    });
}

export function newId() {
    const random = crypto.getRandomValues(new Uint32Array(4));
    return Array.from(random, (n) => n.toString(16).padStart(8, "0")).join("");
}

export function newConversation() {
    const now = Date.now();
    return {id: newId(), title: "", named: false, created: now, updated: now, system: null, messages: []};
}

const headOf = (c) => ({id: c.id, title: c.title, named: c.named, created: c.created, updated: c.updated,
                        n: c.messages.length});

export async function heads() {
    const list = db ? await promise(db.transaction("heads").objectStore("heads").getAll())
                    : Array.from(memory.heads.values());
    return list.sort((a, b) => b.updated - a.updated);
}

export async function load(id) {
    const c = db ? await promise(db.transaction("bodies").objectStore("bodies").get(id)) : memory.bodies.get(id);
    return c ? structuredClone(c) : null;
}

/* Throws a QuotaExceededError where the browser's storage is full. */
export async function save(c) {
    if (!db) {
        memory.heads.set(c.id, headOf(c));
        memory.bodies.set(c.id, structuredClone(c));
        return;
    }
    const t = db.transaction(["heads", "bodies"], "readwrite");
    t.objectStore("heads").put(headOf(c));
    t.objectStore("bodies").put(c);
    await all(t);
    tell(c.id);
}

export async function remove(id) {
    if (!db) {
        memory.heads.delete(id);
        memory.bodies.delete(id);
        return;
    }
    const t = db.transaction(["heads", "bodies"], "readwrite");
    t.objectStore("heads").delete(id);
    t.objectStore("bodies").delete(id);
    await all(t);
    tell(id);
}

export async function removeAll() {
    if (!db) {
        memory.heads.clear();
        memory.bodies.clear();
        return;
    }
    const t = db.transaction(["heads", "bodies"], "readwrite");
    t.objectStore("heads").clear();
    t.objectStore("bodies").clear();
    await all(t);
    tell("");
}

/* Ids of the conversations that have the words, in title or messages. Stops when isOver() says so. */
export async function search(words, isOver) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = new Set();
    const look = (c) => {
        const text = [c.title, ...c.messages.map((m) => m.content || "")].join("\n").toLowerCase();
        if (wanted.every((w) => text.includes(w)))
            found.add(c.id);
    };
    if (!db) {
        memory.bodies.forEach(look);
        return found;
    }
    await new Promise((yes, no) => {
        const request = db.transaction("bodies").objectStore("bodies").openCursor();
        request.onerror = () => no(request.error);
        request.onsuccess = () => {
            const cursor = request.result;
            if (!cursor || isOver())
                return yes();
            look(cursor.value);
            cursor.continue();
        };
    });
    return found;
}

/* ---- export and import ---- */

export async function exportAll() {
    const list = await heads();
    const conversations = [];
    for (const h of list) {
        const c = await load(h.id);
        if (c)
            conversations.push(c);
    }
    return wrap(conversations);
}

export const wrap = (conversations) =>
    JSON.stringify({format: FORMAT, version: 1, exported: new Date().toISOString(), conversations}, null, 1);

const text = (v, most = MESSAGE_BYTES_MAX) => (typeof v === "string" ? v.slice(0, most) : "");
const time = (v) => (Number.isFinite(v) && v > 0 && v < 8e15 ? v : Date.now());

function checkCall(call) {
    return {id: text(call && call.id, 200), name: text(call && call.name, 200),
            arguments: text(call && call.arguments)};
}

function checkMessage(m) {
    if (!m || !["user", "assistant", "tool"].includes(m.role))
        return null;
    const out = {id: newId(), role: m.role, content: text(m.content)};
    if (m.role === "tool")
        out.call = text(m.call, 200);
    if (m.role === "assistant") {
        if (typeof m.thinking === "string" && m.thinking)
            out.thinking = text(m.thinking);
        if (Array.isArray(m.calls) && m.calls.length)
            out.calls = m.calls.slice(0, 64).map(checkCall);
        if (["stop", "length", "tool_calls", "stopped", "broken"].includes(m.finish))
            out.finish = m.finish;
        if (m.stats && typeof m.stats === "object") {
            out.stats = {};
            for (const name of ["tokens", "seconds", "first", "thought", "prompt", "cached", "hits"])
                if (Number.isFinite(m.stats[name]))
                    out.stats[name] = m.stats[name];
        }
    }
    return out;
}

/* Conversations out of a file's text; throws an Error whose message says what is wrong. What is not known is left out. */
export function parseImport(source) {
    let file;
    try {
        file = JSON.parse(source);
    } catch (e) {
        throw new Error(`This file is no JSON: ${e.message}`);
    }
    if (!file || file.format !== FORMAT || !Array.isArray(file.conversations))
        throw new Error("This file was not exported from this page: it has no conversations in Sluice's format.");
    if (!(file.version <= 1))
        throw new Error("This file comes from a newer version of the page.");
    if (file.conversations.length > CONVERSATIONS_MAX)
        throw new Error(`This file has more than ${CONVERSATIONS_MAX} conversations.`);
    return file.conversations.filter((c) => c && Array.isArray(c.messages)).map((c) => ({
        id: /^[0-9a-f]{32}$/.test(c.id) ? c.id : newId(),
        title: text(c.title, 300),
        named: c.named === true,
        created: time(c.created),
        updated: time(c.updated),
        system: typeof c.system === "string" ? text(c.system) : null,
        messages: c.messages.slice(0, MESSAGES_MAX).map(checkMessage).filter(Boolean),
    }));
}

/* Save what is not there already; a conversation that is there and differs comes in as another one. Returns how many. */
export async function importAll(conversations) {
    let n = 0;
    for (const c of conversations) {
        const old = await load(c.id);
        if (old && JSON.stringify(bare(old)) === JSON.stringify(bare(c)))
            continue;
        if (old)
            c.id = newId();
        await save(c);
        n++;
    }
    return n;
}

// What makes two conversations the same: all but the ids of messages.
const bare = (c) => [c.title, c.system, c.messages.map((m) => [m.role, m.content, m.thinking, m.calls, m.call])];

/* ---- settings ---- */

export function setting(name, otherwise) {
    try {
        const found = localStorage.getItem("sluice." + name);
        return found === null ? otherwise : JSON.parse(found);
    } catch {
        return otherwise;
    }
}

export function setSetting(name, value) {
    try {
        if (value === undefined)
            localStorage.removeItem("sluice." + name);
        else
            localStorage.setItem("sluice." + name, JSON.stringify(value));
    } catch {
        // then it lasts as long as the page
    }
}
