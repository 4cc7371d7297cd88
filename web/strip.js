/* The strip of layers: above, what each layer found and read since the request began; below, the same quarter second by
 * quarter second, the newest on top. Drawn when an event comes, and never in between. */
import {el, count, percent} from "./dom.js";

const ROWS = 22, ROW = 3, GAP = 8, BARS = 34;
const HEIGHT = BARS + GAP + ROWS * ROW;
const HIT = 0, READ = 1, EARLY = 2, USED = 3;

export function createStrip() {
    const canvas = el("canvas", {role: "img", "aria-label": "Layers: nothing was computed so far"});
    const tip = el("p.tip", {}, " ");
    const node = el("div.strip", {}, canvas, tip);
    let before = null, base = null, now = null, history = [], colors = null, pointed = -1;

    function readColors() {
        const css = getComputedStyle(document.documentElement);
        const get = (name) => css.getPropertyValue(name).trim();
        colors = {hit: get("--hit"), read: get("--read"), early: get("--early"), empty: get("--cell"), mark: get("--text")};
    }

    function draw() {
        const width = Math.max(node.clientWidth, 60), ratio = window.devicePixelRatio || 1;
        if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(HEIGHT * ratio)) {
            canvas.width = Math.round(width * ratio);
            canvas.height = Math.round(HEIGHT * ratio);
            canvas.style.height = `${HEIGHT}px`;
        }
        if (!colors)
            readColors();
        const g = canvas.getContext("2d");
        g.setTransform(ratio, 0, 0, ratio, 0, 0);
        g.clearRect(0, 0, width, HEIGHT);
        if (!now || !now.length)
            return;
        const step = width / now.length, cell = Math.max(1, step - (step > 5 ? 1.5 : step > 3 ? 1 : 0.4));
        const sums = now.map((layer, i) => layer.map((v, k) => v - base[i][k]));
        const most = Math.max(1, ...sums.map((s) => s[HIT] + s[READ] + s[USED]));
        sums.forEach((s, i) => {
            const x = i * step;
            g.fillStyle = colors.empty;
            g.fillRect(x, 0, cell, BARS);
            g.globalAlpha = 0.4;
            g.fillRect(x, BARS + GAP, cell, ROWS * ROW);
            g.globalAlpha = 1;
            let y = BARS;
            for (const [n, color] of [[s[HIT], colors.hit], [s[USED], colors.early], [s[READ], colors.read]]) {
                const h = n / most * BARS;
                g.fillStyle = color;
                g.fillRect(x, y - h, cell, h);
                y -= h;
            }
        });
        history.forEach((row, r) => {
            const y = BARS + GAP + r * ROW, fade = 1 - r / ROWS * 0.75;
            row.forEach((s, i) => {
                const uses = s[HIT] + s[READ] + s[USED], x = i * step;
                if (!uses && !s[EARLY])
                    return;
                // One colour for a cell, mixed by what its uses were.
                const all = uses || 1;
                for (const [share, color] of [[1, uses ? colors.hit : colors.empty], [s[USED] / all, colors.early], [s[READ] / all, colors.read]]) {
                    g.globalAlpha = fade * share;
                    g.fillStyle = color;
                    g.fillRect(x, y, cell, ROW);
                }
            });
            g.globalAlpha = 1;
        });
        if (pointed >= 0 && pointed < now.length) {
            g.fillStyle = colors.mark;
            g.fillRect(pointed * step, BARS + 3, cell, 2);
        }
    }

    function say() {
        if (!now)
            return;
        if (pointed >= 0 && pointed < now.length) {
            const s = now[pointed].map((v, k) => v - base[pointed][k]);
            const uses = s[HIT] + s[READ] + s[USED];
            tip.textContent = uses ? `Layer ${pointed}: ${count(s[HIT])} found, ${count(s[USED])} read ahead in time, ${count(s[READ])} waited for`
                                   : `Layer ${pointed}: no experts used`;
            return;
        }
        tip.textContent = `Layers 0 to ${now.length - 1}`;
    }

    function describe() {
        let uses = 0, found = 0, worst = 0, most = -1;
        now.forEach((layer, i) => {
            const s = layer.map((v, k) => v - base[i][k]);
            uses += s[HIT] + s[READ] + s[USED];
            found += s[HIT] + s[USED];
            if (s[READ] > most) {
                most = s[READ];
                worst = i;
            }
        });
        canvas.setAttribute("aria-label", uses
            ? `Layers: ${percent(found / uses)} of ${count(uses)} expert uses were in memory in time; most reads in layer ${worst}`
            : "Layers: nothing was computed so far");
    }

    canvas.addEventListener("pointermove", (e) => {
        if (!now)
            return;
        pointed = Math.floor(e.offsetX / canvas.clientWidth * now.length);
        say();
        draw();
    });
    canvas.addEventListener("pointerleave", () => {
        pointed = -1;
        say();
        draw();
    });
    new ResizeObserver(draw).observe(node);

    return {
        node,
        /* layers: of each [hits, reads, reads ahead, those used], since the server opened the model. */
        update(layers, isNew) {
            const restarted = now && (layers.length !== now.length || layers.some((l, i) => l[HIT] + l[READ] + l[USED] < now[i][HIT] + now[i][READ] + now[i][USED] - 8));
            if (!now || restarted) {
                before = base = layers;
                history = [];
            }
            if (isNew)
                base = now || layers;
            now = layers;
            const row = layers.map((l, i) => l.map((v, k) => Math.max(0, v - before[i][k])));
            if (row.some((s) => s[HIT] || s[READ] || s[EARLY])) {
                history.unshift(row);
                history.length = Math.min(history.length, ROWS);
            }
            before = layers;
            describe();
            say();
            draw();
        },
        recolor() {
            colors = null;
            draw();
        },
    };
}
