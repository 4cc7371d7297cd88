/* What shapes an answer: instructions, sampling, tools. Nothing set means the model's own choice. */
import {el, fill, icon} from "./dom.js";
import {setting, setSetting} from "./store.js";

/* Each number with what it does; effect() says it for the value that is set. */
export const numbers = [
    {name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05,
     help: "How freely the next word is drawn.",
     effect: (v) => v === 0 ? "Always the likeliest word: the same question gets the same answer."
         : v < 0.5 ? "Close to the likeliest words: steady, good for facts and code."
         : v <= 1 ? "Likely words, with some variety." : "Unlikely words get a real chance: surprising, and sooner or later nonsense."},
    {name: "top_p", label: "Top p", min: 0.05, max: 1, step: 0.05,
     help: "Draws only among the likeliest words that together reach this share.",
     effect: (v) => v >= 1 ? "Off: every word may be drawn." : `Words beyond the likeliest ${Math.round(v * 100)}% are never drawn.`},
    {name: "top_k", label: "Top k", min: 0, max: 200, step: 1, whole: true,
     help: "Draws only among this many of the likeliest words.",
     effect: (v) => v === 0 ? "Off: every word may be drawn." : v === 1 ? "Only the likeliest word." : `The ${v} likeliest words may be drawn.`},
    {name: "min_p", label: "Min p", min: 0, max: 0.5, step: 0.01,
     help: "Leaves out words much less likely than the likeliest.",
     effect: (v) => v === 0 ? "Off." : `A word needs ${Math.round(v * 100)}% of the likeliest word's chance.`},
    {name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1,
     help: "Pushes away from words that the answer already has.",
     effect: (v) => v === 0 ? "Off." : v > 0 ? "New words are preferred: moves on to other things." : "Words already used are preferred."},
    {name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1,
     help: "The same, more with every time that a word was used.",
     effect: (v) => v === 0 ? "Off." : v > 0 ? "Frequent words become rarer: less repetition." : "Frequent words become more frequent."},
    {name: "repeat_penalty", label: "Repeat penalty", min: 1, max: 2, step: 0.05,
     help: "Makes every word seen so far less likely, those of the prompt too.",
     effect: (v) => v === 1 ? "Off." : v < 1.2 ? "A light push against loops." : "A hard push: also names and terms may get lost."},
    {name: "max_tokens", label: "Longest answer", min: 0, max: 8192, step: 64, whole: true, unit: "tokens",
     help: "The answer is cut after so many tokens.",
     effect: (v) => v === 0 ? "Until the model ends it or the context is full." : `About ${Math.round(v * 0.75)} words.`},
];

export const defaults = () => ({system: "", seed: "", stop: "", thinking: "", tools: "", toolChoice: ""});

export function current() {
    return {...defaults(), ...setting("sampling", {})};
}

/* Members of the request's body. Throws an Error in words where the tools are no JSON. */
export function requestFields(s) {
    const out = {};
    for (const {name} of numbers)
        if (typeof s[name] === "number" && !(name === "max_tokens" && s[name] === 0))
            out[name] = s[name];
    if (/^\d{1,15}$/.test(s.seed))
        out.seed = Number(s.seed);
    const stop = s.stop.split("\n").filter(Boolean).slice(0, 4);
    if (stop.length)
        out.stop = stop;
    if (s.thinking)
        out.enable_thinking = s.thinking === "on";
    const tools = parseTools(s.tools);
    if (tools.length) {
        out.tools = tools;
        if (s.toolChoice)
            out.tool_choice = s.toolChoice;
    }
    return out;
}

export function parseTools(text) {
    if (!text.trim())
        return [];
    let tools;
    try {
        tools = JSON.parse(text);
    } catch (e) {
        throw new Error(`The tools in the settings are no JSON: ${e.message}`);
    }
    tools = Array.isArray(tools) ? tools : [tools];
    return tools.map((t) => {
        const f = t && (t.function || t);
        if (!f || typeof f.name !== "string")
            throw new Error("Each tool in the settings needs a name.");
        return t.function ? t : {type: "function", function: f};
    });
}

const example = `[{
  "name": "get_weather",
  "description": "The weather of a city",
  "parameters": {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"]
  }
}]`;

/* The form, for a dialog. conversation may be null; own: what the model asks for (of /api/v1/memory). changed() is
 * called after each change. */
export function settingsForm(conversation, own, changed) {
    const s = current();
    const keep = () => {
        setSetting("sampling", s);
        changed();
    };
    const hasSystem = conversation && conversation.system !== null;
    const system = el("textarea", {id: "set-system", rows: 5, value: hasSystem ? conversation.system : s.system,
                                   placeholder: "You answer in short sentences."});
    const onlyHere = el("input", {type: "checkbox", id: "set-here", checked: Boolean(hasSystem), disabled: !conversation});
    const keepSystem = () => {
        if (onlyHere.checked) {
            conversation.system = system.value;
        } else {
            if (conversation)
                conversation.system = null;
            s.system = system.value;
        }
        keep();
    };
    system.addEventListener("input", keepSystem);
    onlyHere.addEventListener("change", () => {
        if (!onlyHere.checked)
            system.value = s.system;
        keepSystem();
    });

    const number = (n) => {
        const model = n.name === "max_tokens" ? 0 : own && typeof own[n.name] === "number" ? own[n.name] : null;
        const value = el("output", {htmlFor: `set-${n.name}`});
        const effect = el("p.effect", {id: `effect-${n.name}`});
        const slider = el("input", {type: "range", id: `set-${n.name}`, min: n.min, max: n.max, step: n.step,
                                    "aria-describedby": `effect-${n.name}`});
        const reset = el("button.text-button", {type: "button", "aria-label": `${n.label}: the model's choice`}, "Reset");
        const show = () => {
            const set = typeof s[n.name] === "number", v = set ? s[n.name] : model;
            slider.value = v === null ? n.min : v;
            value.textContent = v === null ? "model's choice" : `${+Number(v).toFixed(2)}${set ? "" : n.name === "max_tokens" ? " (no limit)" : " (model's choice)"}`;
            effect.textContent = v === null ? n.help : `${n.help} ${n.effect(v)}`;
            reset.hidden = !set;
        };
        slider.addEventListener("input", () => {
            s[n.name] = n.whole ? Math.round(Number(slider.value)) : Number(slider.value);
            show();
            keep();
        });
        reset.addEventListener("click", () => {
            delete s[n.name];
            show();
            keep();
            slider.focus();
        });
        show();
        return el("div.setting", {}, el("div.setting-head", {}, el("label", {htmlFor: `set-${n.name}`}, n.label), value, reset),
                  slider, effect);
    };

    const textField = (name, label, help, node) => {
        node.id = `set-${name}`;
        node.value = s[name];
        node.setAttribute("aria-describedby", `effect-${name}`);
        node.addEventListener("input", () => {
            s[name] = node.value;
            keep();
        });
        return el("div.setting", {}, el("div.setting-head", {}, el("label", {htmlFor: node.id}, label)), node,
                  el("p.effect", {id: `effect-${name}`}, help));
    };
    const choice = (name, label, help, options) => textField(name, label, help,
        el("select", {}, options.map(([value, text]) => el("option", {value}, text))));

    const toolsState = el("p.effect", {id: "tools-state", role: "status"});
    const checkTools = () => {
        try {
            const tools = parseTools(s.tools);
            toolsState.textContent = tools.length ? `Offered: ${tools.map((t) => t.function.name).join(", ")}.` : "";
            toolsState.classList.remove("bad");
        } catch (e) {
            toolsState.textContent = e.message;
            toolsState.classList.add("bad");
        }
    };
    const tools = el("textarea.mono", {rows: 6, spellcheck: false, placeholder: example, oninput: () => setTimeout(checkTools)});

    const form = el("div.settings", {},
        el("section", {}, el("h3", {}, "Instructions"),
           el("div.setting", {}, el("label", {htmlFor: "set-system"}, "System prompt"), system,
              el("p.effect", {}, "Stands before every conversation; the model reads it first."),
              el("label.check", {}, onlyHere, " For this conversation only"))),
        el("section", {}, el("h3", {}, "Sampling"), numbers.map(number),
           textField("seed", "Seed", "The same seed, settings and messages give the same answer. Empty: a new one each time.",
                     el("input", {type: "text", inputMode: "numeric", maxLength: 15, pattern: "[0-9]*"})),
           textField("stop", "Stop strings", "One a line, up to four: the answer ends before the first that appears.",
                     el("textarea", {rows: 2, spellcheck: false}))),
        el("section", {}, el("h3", {}, "Thinking and tools"),
           choice("thinking", "Thinking", "Some models can think before they answer: better at hard questions, slower.",
                  [["", "Model's choice"], ["on", "Think first"], ["off", "Answer at once"]]),
           textField("tools", "Tools", "Functions that the model may call, as JSON. The page shows the calls and asks you for the results.", tools),
           toolsState,
           choice("toolChoice", "Calls", "Whether the model has to call one.",
                  [["", "Model decides"], ["required", "Must call one"], ["none", "May not call"]])));
    checkTools();
    return form;
}

/* How many settings differ from the model's own, for the button that opens them. */
export function countChanged() {
    const s = current();
    return numbers.filter((n) => typeof s[n.name] === "number").length +
           ["system", "seed", "stop", "thinking", "tools"].filter((n) => s[n]).length;
}

/* ---- theme ---- */

export const themes = [["", "System", "auto"], ["light", "Light", "sun"], ["dark", "Dark", "moon"]];

export function setTheme(theme) {
    if (theme)
        document.documentElement.dataset.theme = theme;
    else
        delete document.documentElement.dataset.theme;
    setSetting("theme", theme || undefined);
    window.dispatchEvent(new Event("sluice-theme"));
}

export function themeSwitch() {
    const box = el("div.segmented", {role: "group", "aria-label": "Theme"});
    const draw = () => fill(box, themes.map(([value, label, name]) =>
        el("button", {type: "button", "aria-pressed": String((document.documentElement.dataset.theme || "") === value), title: label,
                      "aria-label": `${label} theme`, onclick: () => setTheme(value)}, icon(name))));
    window.addEventListener("sluice-theme", draw);
    draw();
    return box;
}

export function nextTheme() {
    const now = document.documentElement.dataset.theme || "";
    const i = themes.findIndex(([value]) => value === now);
    setTheme(themes[(i + 1) % themes.length][0]);
}
