/* Colours for code: one small tokenizer that knows comments, strings, numbers and words; what differs between languages
 * is a table. Every step takes at least one character and looks back at nothing, so time is linear. */

const BYTES_MAX = 40000; // longer code stays plain

const words = (text) => new Set(text.split(" "));

const c = "break case char const continue default do double else enum extern float for goto if int long register return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL nullptr inline restrict";
const kinds = {
    c: {line: "//", block: ["/*", "*/"], quotes: "\"'",
        words: words(c + " class public private protected virtual override template typename namespace using new delete this throw try catch auto constexpr noexcept operator friend explicit include define ifdef ifndef endif pragma uint8_t uint32_t uint64_t int64_t size_t")},
    js: {line: "//", block: ["/*", "*/"], quotes: "\"'`",
         words: words("async await break case catch class const continue debugger default delete do else export extends false finally for from function get if import in instanceof interface let new null of return set static super switch this throw true try type typeof undefined var void while yield enum implements private public readonly as number string boolean any never unknown")},
    java: {line: "//", block: ["/*", "*/"], quotes: "\"'",
           words: words("abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for foreach if implements import in instanceof int interface internal is long namespace new null object out override package private protected public readonly record ref return sealed short static string struct super switch synchronized this throw throws true try using val var virtual void volatile when while fun data companion")},
    rust: {line: "//", block: ["/*", "*/"], quotes: "\"",
           words: words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while i32 u8 u32 u64 usize f32 f64 bool str String Vec Option Result Some None Ok Err")},
    go: {line: "//", block: ["/*", "*/"], quotes: "\"'`",
         words: words("break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false int string bool byte rune error float64 int64 uint64")},
    python: {line: "#", quotes: "\"'", triple: true,
             words: words("and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case self print len range int str float list dict set tuple")},
    shell: {line: "#", quotes: "\"'", dollar: true,
            words: words("if then else elif fi for while until do done case esac in function return local export readonly set unset exit echo cd test shift trap source eval exec sudo")},
    ruby: {line: "#", quotes: "\"'`",
           words: words("alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_accessor puts")},
    sql: {line: "--", block: ["/*", "*/"], quotes: "'\"", fold: true,
          words: words("select from where and or not null insert into values update set delete create table primary key foreign references index view drop alter add join left right inner outer full on as group by order having limit offset union all distinct case when then else end in exists between like is asc desc with returning integer text varchar boolean default constraint unique begin commit rollback")},
    lua: {line: "--", quotes: "\"'",
          words: words("and break do else elseif end false for function goto if in local nil not or repeat return then true until while where let module import data type class instance case of deriving")},
    data: {line: "#", quotes: "\"'", words: words("true false null yes no on off")},
    json: {quotes: "\"", words: words("true false null")},
    css: {block: ["/*", "*/"], quotes: "\"'", words: words("important media supports import from to var calc rgb rgba hsl auto none inherit initial flex grid block inline absolute relative fixed sticky solid")},
};
const names = {
    c: "c h cpp c++ cc cxx hpp objc glsl cuda", js: "js javascript jsx ts typescript tsx mjs", rust: "rust rs", go: "go golang",
    java: "java kotlin kt csharp cs c# scala swift dart php groovy", python: "python py py3", ruby: "ruby rb perl r elixir",
    shell: "sh bash shell zsh console shell-session dockerfile docker makefile make cmake fish powershell", sql: "sql sqlite postgres mysql",
    lua: "lua haskell hs ada elm", data: "yaml yml toml ini conf properties", json: "json jsonc json5", css: "css scss less",
};
const byName = new Map();
for (const [kind, list] of Object.entries(names))
    for (const name of list.split(" "))
        byName.set(name, kinds[kind]);

function put(parent, kind, text) {
    if (!kind) {
        parent.append(text);
        return;
    }
    const span = document.createElement("span");
    span.className = "hl-" + kind;
    span.textContent = text;
    parent.append(span);
}

// Where the string that begins at i ends; a single-line one ends with its line.
function stringEnd(code, i, quote, triple) {
    const three = quote.repeat(3);
    if (triple && code.startsWith(three, i)) {
        const end = code.indexOf(three, i + 3);
        return end < 0 ? code.length : end + 3;
    }
    for (let j = i + 1; j < code.length; j++) {
        if (code[j] === "\\")
            j++;
        else if (code[j] === quote)
            return j + 1;
        else if (code[j] === "\n" && quote !== "`")
            return j;
    }
    return code.length;
}

const word = /[A-Za-z_$][\w$]*/y, number = /\d[\w.]*/y, plain = /[^A-Za-z_$\d"'`#/\-*<&]+/y;

function generic(parent, code, k) {
    let i = 0, text = "";
    const flush = () => {
        if (text)
            put(parent, "", text);
        text = "";
    };
    const token = (kind, end) => {
        flush();
        put(parent, kind, code.slice(i, end));
        i = end;
    };
    const at = (re) => {
        re.lastIndex = i;
        const m = re.exec(code);
        return m ? m[0] : "";
    };
    while (i < code.length) {
        const ch = code[i];
        let m;
        if (k.line && code.startsWith(k.line, i) && (k.line !== "#" || i === 0 || /[\s(;]/.test(code[i - 1]))) {
            const end = code.indexOf("\n", i);
            token("comment", end < 0 ? code.length : end);
        } else if (k.block && code.startsWith(k.block[0], i)) {
            const end = code.indexOf(k.block[1], i + 2);
            token("comment", end < 0 ? code.length : end + 2);
        } else if (k.quotes.includes(ch)) {
            token("string", stringEnd(code, i, ch, k.triple));
        } else if ((m = at(word))) {
            const end = i + m.length;
            if (k.words.has(k.fold ? m.toLowerCase() : m)) {
                token("keyword", end);
            } else if (code[end] === "(") {
                token("call", end);
            } else if (ch === "$" && k.dollar) {
                token("call", end);
            } else {
                text += m;
                i = end;
            }
        } else if ((m = at(number))) {
            token("number", i + m.length);
        } else {
            m = at(plain) || ch;
            text += m;
            i += m.length;
        }
    }
    flush();
}

function markup(parent, code) {
    let i = 0;
    while (i < code.length) {
        const open = code.indexOf("<", i);
        if (open < 0) {
            put(parent, "", code.slice(i));
            return;
        }
        if (open > i)
            put(parent, "", code.slice(i, open));
        const comment = code.startsWith("<!--", open);
        const close = code.indexOf(comment ? "-->" : ">", open);
        const end = close < 0 ? code.length : close + (comment ? 3 : 1);
        put(parent, comment ? "comment" : "keyword", code.slice(open, end));
        i = end;
    }
}

function diff(parent, code) {
    for (const line of code.split(/(?<=\n)/))
        put(parent, line[0] === "+" ? "add" : line[0] === "-" ? "del" : line[0] === "@" ? "keyword" : "", line);
}

/* Append code to parent, coloured where the language is known. */
export function highlight(parent, code, language) {
    const name = language.toLowerCase();
    const k = byName.get(name);
    if (code.length > BYTES_MAX)
        parent.append(code);
    else if (k)
        generic(parent, code, k);
    else if (["html", "xml", "svg", "vue"].includes(name))
        markup(parent, code);
    else if (name === "diff" || name === "patch")
        diff(parent, code);
    else
        parent.append(code);
}
