/* Tokens to tree. Owns the grammar of expressions and statements, and every decision that needs no
 * values: which filters, tests, methods and functions exist and how many arguments they take. Recursion is bounded by TPL_DEPTH_MAX. */
#include <string.h>

#include "text/template_lex.h"

/* ---- nodes --------------------------------------------------------------------------------- */

static tpl_node *new_node(tpl_parser *p, tpl_kind kind, size_t at) {
    tpl_node *node = sl__tpl_lex_alloc(p, sizeof(*node), _Alignof(tpl_node));
    if (!node)
        node = &p->lost;
    memset(node, 0, sizeof(*node));
    node->kind = (uint8_t)kind;
    node->at = (uint32_t)at;
    node->height = 1;
    return node;
}

static void raise_height(tpl_parser *p, tpl_node *parent, const tpl_node *child) {
    if (child->height < parent->height)
        return;
    if (child->height == SL_TEMPLATE_HEIGHT_MAX)
        sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, parent->at, "nested more than %d deep",
                         SL_TEMPLATE_HEIGHT_MAX);
    parent->height = child->height + 1;
}

static tpl_node *adopt(tpl_parser *p, tpl_node *parent, tpl_node *child) {
    raise_height(p, parent, child);
    return child;
}

static void append(tpl_parser *p, tpl_node *parent, tpl_node ***tail, tpl_node *child) {
    raise_height(p, parent, child);
    **tail = child; // NOLINT(clang-analyzer-core.NullDereference): no tail is ever NULL
    *tail = &child->next;
}

static bool enter(tpl_parser *p) {
    if (p->status)
        return false;
    if (p->depth == TPL_DEPTH_MAX) {
        sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->tok.at, "nested more than %d deep",
                         TPL_DEPTH_MAX);
        return false;
    }
    p->depth++;
    return true;
}

static tpl_node *lost(tpl_parser *p) {
    return new_node(p, TPL_CONST_NONE, 0);
}

/* ---- token helpers ------------------------------------------------------------------------- */

static bool text_is(const char *text, size_t len, const char *word) {
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

static bool is_name(const tpl_parser *p, const char *word) {
    return p->tok.kind == TK_NAME && text_is(p->tok.text, p->tok.len, word);
}

// The word is one of the names in words, which are separated by blanks.
static bool word_among(const char *text, size_t len, const char *words) {
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, " ");
        if (n == len && memcmp(w, text, n) == 0)
            return true;
        w += n + (w[n] == ' ');
    }
    return false;
}

static bool is_among(const tpl_parser *p, const char *words) {
    return p->tok.kind == TK_NAME && word_among(p->tok.text, p->tok.len, words);
}

static void unexpected(tpl_parser *p, const char *wanted) {
    if (p->tok.kind == TK_END)
        sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->tok.at, "the template ends, expected %s", wanted);
    else if (p->tok.kind == TK_NAME)
        sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->tok.at, "expected %s, found '%.*s'", wanted,
                         (int)SL_MIN(p->tok.len, (size_t)60), p->tok.text);
    else
        sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->tok.at, "expected %s", wanted);
}

static bool skip_name(tpl_parser *p, const char *word) {
    if (!is_name(p, word))
        return false;
    sl__tpl_lex_next(p);
    return true;
}

static bool skip_kind(tpl_parser *p, tpl_token_kind kind) {
    if (p->tok.kind != kind)
        return false;
    sl__tpl_lex_next(p);
    return true;
}

static void expect(tpl_parser *p, tpl_token_kind kind, const char *wanted) {
    if (!skip_kind(p, kind))
        unexpected(p, wanted);
}

/* ---- expressions --------------------------------------------------------------------------- */

static tpl_node *parse_expression(tpl_parser *p, bool with_cond);
static tpl_node *parse_unary(tpl_parser *p, bool with_filter);

static tpl_node *text_node(tpl_parser *p, tpl_kind kind, const tpl_token *tok) {
    tpl_node *node = new_node(p, kind, tok->at);
    node->text = tok->text;
    node->len = (uint32_t)tok->len;
    return node;
}

static bool ends_tuple(const tpl_parser *p, const char *end_name) {
    return p->tok.kind == TK_VARIABLE_END || p->tok.kind == TK_BLOCK_END ||
           p->tok.kind == TK_RPAREN || p->tok.kind == TK_END || (end_name && is_name(p, end_name));
}

// One expression, or several with commas, which make a tuple. Nothing at all is a tuple only between
// parentheses.
static tpl_node *parse_tuple(tpl_parser *p, bool with_cond, const char *end_name, bool in_parens) {
    size_t at = p->tok.at;
    if (ends_tuple(p, end_name) && !in_parens) {
        unexpected(p, "an expression");
        return lost(p);
    }
    tpl_node *first = ends_tuple(p, end_name) ? NULL : parse_expression(p, with_cond);
    if (first && p->tok.kind != TK_COMMA)
        return first;
    tpl_node *tuple = new_node(p, TPL_TUPLE, at);
    tpl_node **tail = &tuple->a;
    if (first)
        append(p, tuple, &tail, first);
    while (skip_kind(p, TK_COMMA) && !ends_tuple(p, end_name))
        append(p, tuple, &tail, parse_expression(p, with_cond));
    return tuple;
}

static tpl_node *parse_list(tpl_parser *p) {
    tpl_node *list = new_node(p, TPL_LIST, p->tok.at);
    tpl_node **tail = &list->a;
    sl__tpl_lex_next(p);
    while (!p->status && p->tok.kind != TK_RBRACKET) {
        append(p, list, &tail, parse_expression(p, true));
        if (!skip_kind(p, TK_COMMA))
            break;
    }
    expect(p, TK_RBRACKET, "',' or ']'");
    return list;
}

static tpl_node *parse_dict(tpl_parser *p) {
    tpl_node *dict = new_node(p, TPL_DICT, p->tok.at);
    tpl_node **tail = &dict->a;
    sl__tpl_lex_next(p);
    while (!p->status && p->tok.kind != TK_RBRACE) {
        append(p, dict, &tail, parse_expression(p, true));
        expect(p, TK_COLON, "':'");
        append(p, dict, &tail, parse_expression(p, true));
        if (!skip_kind(p, TK_COMMA))
            break;
    }
    expect(p, TK_RBRACE, "',' or '}'");
    return dict;
}

static tpl_node *parse_strings(tpl_parser *p) {
    tpl_node *node = text_node(p, TPL_CONST_STR, &p->tok);
    sl__tpl_lex_next(p);
    while (p->tok.kind == TK_STR) {
        char *joined = sl__tpl_lex_alloc(p, node->len + p->tok.len, 1);
        if (!joined)
            break;
        memcpy(joined, node->text, node->len);
        memcpy(joined + node->len, p->tok.text, p->tok.len);
        node->text = joined;
        node->len += (uint32_t)p->tok.len;
        sl__tpl_lex_next(p);
    }
    return node;
}

static tpl_node *parse_name(tpl_parser *p) {
    tpl_token tok = p->tok;
    sl__tpl_lex_next(p);
    if (word_among(tok.text, tok.len, "true True false False")) {
        tpl_node *node = new_node(p, TPL_CONST_BOOL, tok.at);
        node->op = tok.text[0] == 't' || tok.text[0] == 'T';
        return node;
    }
    if (word_among(tok.text, tok.len, "none None"))
        return new_node(p, TPL_CONST_NONE, tok.at);
    if (word_among(tok.text, tok.len, "self super") ||
        (p->n_macros && word_among(tok.text, tok.len, "varargs kwargs caller")))
        sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, tok.at, "the special name '%.*s'", (int)tok.len,
                         tok.text);
    return text_node(p, TPL_NAME, &tok);
}

static tpl_node *parse_primary(tpl_parser *p) {
    tpl_node *node;
    size_t at = p->tok.at;
    if (!enter(p))
        return lost(p);
    switch (p->tok.kind) {
    case TK_NAME:
        node = parse_name(p);
        break;
    case TK_STR:
        node = parse_strings(p);
        break;
    case TK_INT:
        node = new_node(p, TPL_CONST_INT, at);
        node->i = p->tok.i;
        sl__tpl_lex_next(p);
        break;
    case TK_FLOAT:
        node = new_node(p, TPL_CONST_FLOAT, at);
        node->f = p->tok.f;
        sl__tpl_lex_next(p);
        break;
    case TK_LPAREN:
        sl__tpl_lex_next(p);
        node = parse_tuple(p, true, NULL, true);
        expect(p, TK_RPAREN, "')'");
        break;
    case TK_LBRACKET:
        node = parse_list(p);
        break;
    case TK_LBRACE:
        node = parse_dict(p);
        break;
    default:
        unexpected(p, "an expression");
        node = lost(p);
    }
    p->depth--;
    return node;
}

// The arguments of a call, from the opening parenthesis. They go to parent->b, positional ones first.
static void parse_arguments(tpl_parser *p, tpl_node *parent) {
    tpl_node **tail = &parent->b;
    bool named = false;
    sl__tpl_lex_next(p);
    while (!p->status && p->tok.kind != TK_RPAREN) {
        if (p->tok.kind == TK_MUL || p->tok.kind == TK_POW) {
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->tok.at, "* and ** in a call");
        } else if (p->tok.kind == TK_NAME && sl__tpl_lex_assign_follows(p)) {
            tpl_node *keyword = text_node(p, TPL_KEYWORD, &p->tok);
            for (const tpl_node *arg = parent->b; arg && !p->status; arg = arg->next) {
                if (arg->kind == TPL_KEYWORD && arg->len == keyword->len &&
                    memcmp(arg->text, keyword->text, arg->len) == 0)
                    sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->tok.at, "argument '%.*s' is given twice",
                                     (int)SL_MIN(arg->len, 60u), arg->text);
            }
            sl__tpl_lex_next(p);
            sl__tpl_lex_next(p);
            keyword->a = adopt(p, keyword, parse_expression(p, true));
            append(p, parent, &tail, keyword);
            named = true;
        } else if (named) {
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->tok.at,
                             "an argument without a name after named ones");
        } else {
            append(p, parent, &tail, parse_expression(p, true));
        }
        if (!skip_kind(p, TK_COMMA))
            break;
    }
    expect(p, TK_RPAREN, "',' or ')'");
}

static tpl_node *parse_call(tpl_parser *p, tpl_node *callee) {
    tpl_node *call = new_node(p, TPL_CALL, p->tok.at);
    call->a = adopt(p, call, callee);
    parse_arguments(p, call);
    if (callee->kind == TPL_NAME) {
        call->c = p->calls;
        p->calls = call;
    } else if (callee->kind == TPL_ATTR &&
               !sl__tpl_find_method(callee->text, callee->len, TPL_V_ABSENT)) {
        sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, callee->at, "unknown method '%.*s'",
                         (int)SL_MIN(callee->len, 60u), callee->text);
    }
    return call;
}

static tpl_node *parse_index(tpl_parser *p) {
    if (p->tok.kind == TK_COLON || p->tok.kind == TK_RBRACKET || p->tok.kind == TK_COMMA)
        return new_node(p, TPL_ABSENT, p->tok.at);
    return parse_expression(p, true);
}

static tpl_node *parse_subscript(tpl_parser *p, tpl_node *object) {
    size_t at = p->tok.at;
    if (skip_kind(p, TK_DOT)) {
        tpl_token tok = p->tok;
        if (tok.kind == TK_NAME) {
            tpl_node *attr = text_node(p, TPL_ATTR, &tok);
            attr->a = adopt(p, attr, object);
            sl__tpl_lex_next(p);
            return attr;
        }
        tpl_node *item = new_node(p, TPL_ITEM, at);
        item->a = adopt(p, item, object);
        item->b = new_node(p, TPL_CONST_INT, tok.at);
        item->b->i = tok.i;
        adopt(p, item, item->b);
        expect(p, TK_INT, "a name or a number");
        return item;
    }
    sl__tpl_lex_next(p);
    tpl_node *start = p->tok.kind == TK_RBRACKET ? NULL : parse_index(p);
    bool slice = start && p->tok.kind == TK_COLON;
    tpl_node *node = new_node(p, slice ? TPL_SLICE : TPL_ITEM, at);
    tpl_node **tail = &node->b;
    node->a = adopt(p, node, object);
    if (slice) {
        append(p, node, &tail, start);
        sl__tpl_lex_next(p);
        append(p, node, &tail, parse_index(p));
        bool step = skip_kind(p, TK_COLON);
        append(p, node, &tail, step ? parse_index(p) : new_node(p, TPL_ABSENT, p->tok.at));
        if (p->tok.kind == TK_COMMA)
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->tok.at, "a slice beside another index");
    } else if (start && p->tok.kind != TK_COMMA) {
        append(p, node, &tail, start);
    } else {
        // None or several make a tuple, which is a key that a dict may have.
        tpl_node *tuple = new_node(p, TPL_TUPLE, at), **items = &tuple->a;
        if (start)
            append(p, tuple, &items, start);
        while (skip_kind(p, TK_COMMA))
            append(p, tuple, &items, parse_expression(p, true));
        append(p, node, &tail, tuple);
    }
    expect(p, TK_RBRACKET, "']'");
    return node;
}

static tpl_node *parse_postfix(tpl_parser *p, tpl_node *node) {
    for (;;) {
        if (p->tok.kind == TK_DOT || p->tok.kind == TK_LBRACKET)
            node = parse_subscript(p, node);
        else if (p->tok.kind == TK_LPAREN)
            node = parse_call(p, node);
        else
            return node;
    }
}

// The arguments of a filter or test are counted here; names that are given as strings are looked up.
static void check_callable(tpl_parser *p, const tpl_node *node, const char *what,
                           const tpl_token *name) {
    if (!node->fn) {
        if (!p->status)
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, name->at, "unknown %s '%.*s'", what,
                             (int)SL_MIN(name->len, (size_t)60), name->text);
        return;
    }
    uint32_t n = 0;
    const tpl_node *arg = node->b, *keywords;
    for (; arg && arg->kind != TPL_KEYWORD; arg = arg->next)
        n++;
    keywords = arg;
    const char *problem = sl__tpl_check_call(node->fn, n, keywords);
    if (problem)
        sl__tpl_lex_fail(p, SL_ERR_SYNTAX, name->at, "%s '%s' %s", what, node->fn->name, problem);
    const char *const with_filter = "map", *const with_test = "select reject";
    const char *const with_attr_test = "selectattr rejectattr";
    arg = node->b;
    if (node->kind == TPL_FILTER && arg && word_among(name->text, name->len, with_attr_test))
        arg = arg->next;
    if (!arg || arg->kind != TPL_CONST_STR || node->kind != TPL_FILTER)
        return;
    if (word_among(name->text, name->len, with_filter) && !sl__tpl_find_filter(arg->text, arg->len))
        sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, arg->at, "unknown filter '%.*s'",
                         (int)SL_MIN(arg->len, 60u), arg->text);
    else if ((word_among(name->text, name->len, with_test) ||
              (arg != node->b && word_among(name->text, name->len, with_attr_test))) &&
             !sl__tpl_find_test(arg->text, arg->len))
        sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, arg->at, "unknown test '%.*s'",
                         (int)SL_MIN(arg->len, 60u), arg->text);
}

// After the bar.
static tpl_node *parse_filter(tpl_parser *p, tpl_node *subject) {
    tpl_token name = p->tok;
    expect(p, TK_NAME, "the name of a filter");
    tpl_node *node = new_node(p, TPL_FILTER, name.at);
    node->a = adopt(p, node, subject);
    if (p->tok.kind == TK_LPAREN)
        parse_arguments(p, node);
    if (p->status)
        return node;
    node->fn = sl__tpl_find_filter(name.text, name.len);
    check_callable(p, node, "filter", &name);
    return node;
}

// After "is".
static tpl_node *parse_test(tpl_parser *p, tpl_node *subject) {
    size_t at = p->tok.at;
    bool negated = skip_name(p, "not");
    tpl_token name = p->tok;
    expect(p, TK_NAME, "the name of a test");
    tpl_node *node = new_node(p, TPL_TEST, name.at);
    node->a = adopt(p, node, subject);
    switch (p->tok.kind) {
    case TK_LPAREN:
        parse_arguments(p, node);
        break;
    case TK_NAME:
        // An argument without parentheses. As in Jinja, "if" is not among the words that end a test.
        if (is_among(p, "else or and"))
            break;
        if (is_name(p, "is"))
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->tok.at, "two tests in a row");
        // fall through
    case TK_STR:
    case TK_INT:
    case TK_FLOAT:
    case TK_LBRACKET:
    case TK_LBRACE:
        node->b = adopt(p, node, parse_postfix(p, parse_primary(p)));
        break;
    default:
        break;
    }
    if (p->status)
        return node;
    node->fn = sl__tpl_find_test(name.text, name.len);
    check_callable(p, node, "test", &name);
    if (!negated)
        return node;
    tpl_node *not = new_node(p, TPL_UNARY, at);
    not ->op = TPL_OP_NOT;
    not ->a = adopt(p, not, node);
    return not ;
}

static tpl_node *parse_unary(tpl_parser *p, bool with_filter) {
    tpl_node *node;
    if (p->tok.kind == TK_SUB || p->tok.kind == TK_ADD) {
        if (!enter(p))
            return lost(p);
        node = new_node(p, TPL_UNARY, p->tok.at);
        node->op = p->tok.kind == TK_SUB ? TPL_OP_NEGATE : TPL_OP_PLUS;
        sl__tpl_lex_next(p);
        node->a = adopt(p, node, parse_unary(p, false));
        p->depth--;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (with_filter && !p->status) {
        if (skip_kind(p, TK_PIPE))
            node = parse_filter(p, node);
        else if (skip_name(p, "is"))
            node = parse_test(p, node);
        else if (p->tok.kind == TK_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

// From loose to tight. Every level is read from left to right, ** included.
typedef enum precedence {
    PREC_NONE,
    PREC_OR,
    PREC_AND,
    PREC_NOT,
    PREC_COMPARE,
    PREC_SUM,
    PREC_CONCAT,
    PREC_PRODUCT,
    PREC_POWER,
    PREC_UNARY,
} precedence;

// The binary operator at the current token.
static precedence operator_at(const tpl_parser *p, tpl_op *op) {
    static const struct {
        tpl_token_kind kind;
        precedence prec;
        tpl_op op;
    } table[] = {
        {TK_EQ, PREC_COMPARE, TPL_OP_EQ},       {TK_NE, PREC_COMPARE, TPL_OP_NE},
        {TK_LT, PREC_COMPARE, TPL_OP_LT},       {TK_LE, PREC_COMPARE, TPL_OP_LE},
        {TK_GT, PREC_COMPARE, TPL_OP_GT},       {TK_GE, PREC_COMPARE, TPL_OP_GE},
        {TK_ADD, PREC_SUM, TPL_OP_ADD},         {TK_SUB, PREC_SUM, TPL_OP_SUB},
        {TK_TILDE, PREC_CONCAT, TPL_OP_CONCAT}, {TK_MUL, PREC_PRODUCT, TPL_OP_MUL},
        {TK_DIV, PREC_PRODUCT, TPL_OP_DIV},     {TK_FLOOR_DIV, PREC_PRODUCT, TPL_OP_FLOOR_DIV},
        {TK_MOD, PREC_PRODUCT, TPL_OP_MOD},     {TK_POW, PREC_POWER, TPL_OP_POW},
    };
    if (p->tok.kind == TK_NAME) {
        *op = is_name(p, "or")    ? TPL_OP_OR
              : is_name(p, "and") ? TPL_OP_AND
              : is_name(p, "in")  ? TPL_OP_IN
                                  : TPL_OP_NONE;
        if (is_name(p, "not") && sl__tpl_lex_in_follows(p))
            *op = TPL_OP_NOT_IN;
        return *op == TPL_OP_OR     ? PREC_OR
               : *op == TPL_OP_AND  ? PREC_AND
               : *op == TPL_OP_NONE ? PREC_NONE
                                    : PREC_COMPARE;
    }
    for (size_t i = 0; i < SL_COUNT(table); i++) {
        if (table[i].kind == p->tok.kind) {
            *op = table[i].op;
            return table[i].prec;
        }
    }
    return PREC_NONE;
}

// An expression of operators that bind at least as tightly as min. Operators of one level become one
// node with a chain of operands, so a long sum is not a deep tree.
static tpl_node *parse_binary(tpl_parser *p, precedence min) {
    static const uint8_t kinds[] = {
        [PREC_OR] = TPL_OR,        [PREC_AND] = TPL_AND,       [PREC_COMPARE] = TPL_COMPARE,
        [PREC_SUM] = TPL_BINARY,   [PREC_CONCAT] = TPL_CONCAT, [PREC_PRODUCT] = TPL_BINARY,
        [PREC_POWER] = TPL_BINARY,
    };
    tpl_node *left;
    if (!enter(p))
        return lost(p);
    if (min <= PREC_NOT && is_name(p, "not")) {
        left = new_node(p, TPL_UNARY, p->tok.at);
        left->op = TPL_OP_NOT;
        sl__tpl_lex_next(p);
        left->a = adopt(p, left, parse_binary(p, PREC_NOT));
    } else {
        left = parse_unary(p, true);
    }
    for (;;) {
        tpl_op op;
        precedence level = operator_at(p, &op);
        if (level == PREC_NONE || level < min || p->status)
            break;
        tpl_node *node = new_node(p, kinds[level], p->tok.at);
        tpl_node **tail = &node->b;
        node->a = adopt(p, node, left);
        while (operator_at(p, &op) == level && !p->status) {
            tpl_node *operand = new_node(p, TPL_OPERAND, p->tok.at);
            if (op == TPL_OP_MOD && !node->b && left->kind == TPL_CONST_STR)
                sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->tok.at, "formatting with %%");
            operand->op = (uint8_t)op;
            sl__tpl_lex_next(p);
            if (op == TPL_OP_NOT_IN)
                sl__tpl_lex_next(p);
            operand->a = adopt(p, operand, parse_binary(p, level + 1));
            append(p, node, &tail, operand);
        }
        left = node;
    }
    p->depth--;
    return left;
}

static tpl_node *parse_expression(tpl_parser *p, bool with_cond) {
    if (!enter(p))
        return lost(p);
    tpl_node *node = parse_binary(p, PREC_OR);
    while (with_cond && is_name(p, "if")) {
        tpl_node *cond = new_node(p, TPL_COND, p->tok.at);
        sl__tpl_lex_next(p);
        cond->b = adopt(p, cond, node);
        cond->a = adopt(p, cond, parse_binary(p, PREC_OR));
        if (skip_name(p, "else"))
            cond->c = adopt(p, cond, parse_expression(p, true));
        node = cond;
    }
    p->depth--;
    return node;
}

/* ---- statements ---------------------------------------------------------------------------- */

static tpl_node *parse_body(tpl_parser *p, const char *ends, tpl_node *parent);

static tpl_node *parse_target(tpl_parser *p, bool with_namespace);

static tpl_node *parse_target_item(tpl_parser *p, bool with_namespace) {
    size_t at = p->tok.at;
    if (skip_kind(p, TK_LPAREN)) {
        tpl_node *inner = parse_target(p, with_namespace);
        expect(p, TK_RPAREN, "')'");
        return inner;
    }
    if (is_among(p, "true True false False none None"))
        sl__tpl_lex_fail(p, SL_ERR_SYNTAX, at, "cannot assign to this name");
    tpl_node *name = text_node(p, TPL_NAME, &p->tok);
    expect(p, TK_NAME, "a name to assign to");
    if (!with_namespace || !skip_kind(p, TK_DOT))
        return name;
    tpl_node *attr = text_node(p, TPL_ATTR, &p->tok);
    attr->a = adopt(p, attr, name);
    expect(p, TK_NAME, "the name of an attribute");
    return attr;
}

// What can be assigned to: a name, names with commas, or (in set) an attribute of a namespace.
static tpl_node *parse_target(tpl_parser *p, bool with_namespace) {
    if (!enter(p))
        return lost(p);
    size_t at = p->tok.at;
    tpl_node *target = parse_target_item(p, with_namespace);
    if (p->tok.kind == TK_COMMA) {
        tpl_node *tuple = new_node(p, TPL_TUPLE, at), **tail = &tuple->a;
        append(p, tuple, &tail, target);
        while (skip_kind(p, TK_COMMA) && !ends_tuple(p, "in"))
            append(p, tuple, &tail, parse_target_item(p, with_namespace));
        target = tuple;
    }
    p->depth--;
    return target;
}

// Past the end of the opening tag, the body, and the closing tag up to its end mark.
static tpl_node *block_body(tpl_parser *p, const char *end, tpl_node *parent) {
    expect(p, TK_BLOCK_END, "the end of the tag");
    tpl_node *body = parse_body(p, end, parent);
    sl__tpl_lex_next(p);
    return body;
}

static tpl_node *parse_if(tpl_parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_IF, at);
    tpl_node **tail = &node->a;
    for (bool more = true; more && !p->status;) {
        tpl_node *branch = new_node(p, TPL_BRANCH, at);
        branch->a = adopt(p, branch, parse_tuple(p, false, NULL, false));
        expect(p, TK_BLOCK_END, "the end of the tag");
        branch->b = parse_body(p, "elif else endif", branch);
        append(p, node, &tail, branch);
        more = skip_name(p, "elif");
    }
    if (skip_name(p, "else")) {
        tpl_node *branch = new_node(p, TPL_BRANCH, at);
        branch->b = block_body(p, "endif", branch);
        append(p, node, &tail, branch);
    } else {
        sl__tpl_lex_next(p); // endif
    }
    return node;
}

static tpl_node *parse_for(tpl_parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_FOR, at), *loop = new_node(p, TPL_LOOP, at);
    node->a = adopt(p, node, parse_target(p, false));
    if (!skip_name(p, "in"))
        unexpected(p, "'in'");
    node->b = adopt(p, node, parse_tuple(p, false, "recursive", false));
    if (skip_name(p, "if"))
        loop->a = adopt(p, loop, parse_expression(p, true));
    if (is_name(p, "recursive"))
        sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->tok.at, "a recursive loop");
    expect(p, TK_BLOCK_END, "the end of the tag");
    p->n_loops++;
    loop->b = parse_body(p, "else endfor", loop);
    p->n_loops--;
    if (skip_name(p, "else"))
        loop->c = block_body(p, "endfor", loop);
    else
        sl__tpl_lex_next(p); // endfor
    node->c = adopt(p, node, loop);
    return node;
}

static tpl_node *parse_block_filters(tpl_parser *p, bool first_has_no_bar) {
    tpl_node *node = new_node(p, TPL_SUBJECT, p->tok.at);
    if (first_has_no_bar)
        node = parse_filter(p, node);
    while (skip_kind(p, TK_PIPE))
        node = parse_filter(p, node);
    return node;
}

static tpl_node *parse_set(tpl_parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_SET, at);
    node->a = adopt(p, node, parse_target(p, true));
    if (skip_kind(p, TK_ASSIGN)) {
        node->b = adopt(p, node, parse_tuple(p, true, NULL, false));
        return node;
    }
    node->kind = TPL_SET_BLOCK;
    node->b = adopt(p, node, parse_block_filters(p, false));
    node->c = block_body(p, "endset", node);
    return node;
}

static tpl_node *parse_filter_block(tpl_parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_FILTER_BLOCK, at);
    node->b = adopt(p, node, parse_block_filters(p, true));
    node->c = block_body(p, "endfilter", node);
    return node;
}

static tpl_node *parse_macro(tpl_parser *p, size_t at) {
    tpl_token name = p->tok;
    expect(p, TK_NAME, "the name of the macro");
    tpl_node *node = text_node(p, TPL_MACRO, &name);
    tpl_node **tail = &node->a;
    bool defaults = false;
    node->at = (uint32_t)at;
    tpl_node *link = new_node(p, TPL_OPERAND, at);
    link->a = node;
    link->next = p->macros;
    p->macros = link;
    uint32_t n_loops = p->n_loops;
    p->n_loops = 0;
    p->n_macros++;
    expect(p, TK_LPAREN, "'('");
    while (!p->status && p->tok.kind != TK_RPAREN) {
        tpl_node *param = text_node(p, TPL_PARAM, &p->tok);
        if (is_among(p, "varargs kwargs caller"))
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->tok.at, "the special name '%.*s'",
                             (int)p->tok.len, p->tok.text);
        if (is_among(p, "true True false False none None"))
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->tok.at, "cannot assign to this name");
        for (const tpl_node *other = node->a; other && !p->status; other = other->next) {
            if (other->len == param->len && memcmp(other->text, param->text, param->len) == 0)
                sl__tpl_lex_fail(p, SL_ERR_SYNTAX, param->at, "two parameters of one name");
        }
        expect(p, TK_NAME, "the name of a parameter");
        if (skip_kind(p, TK_ASSIGN)) {
            param->a = adopt(p, param, parse_expression(p, true));
            defaults = true;
        } else if (defaults) {
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, param->at,
                             "a parameter without a default after one with");
        }
        append(p, node, &tail, param);
        if (p->tok.kind != TK_RPAREN)
            expect(p, TK_COMMA, "',' or ')'");
    }
    expect(p, TK_RPAREN, "')'");
    node->b = block_body(p, "endmacro", node);
    p->n_loops = n_loops;
    p->n_macros--;
    return node;
}

static tpl_node *parse_with(tpl_parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_WITH, at);
    tpl_node **tail = &node->a;
    while (!p->status && p->tok.kind != TK_BLOCK_END) {
        if (node->a)
            expect(p, TK_COMMA, "','");
        append(p, node, &tail, parse_target(p, false));
        expect(p, TK_ASSIGN, "'='");
        append(p, node, &tail, parse_expression(p, true));
    }
    node->b = block_body(p, "endwith", node);
    return node;
}

// transformers marks what the assistant said with this block. It prints its body, in a scope of its
// own and out of reach for break and continue.
static tpl_node *parse_generation(tpl_parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_WITH, at);
    uint32_t n_loops = p->n_loops;
    p->n_loops = 0;
    node->b = block_body(p, "endgeneration", node);
    p->n_loops = n_loops;
    return node;
}

// After "{%", with a name as the current token.
static tpl_node *parse_statement(tpl_parser *p) {
    static const struct {
        const char *name;
        tpl_node *(*parse)(tpl_parser *p, size_t at);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"with", parse_with},
        {"filter", parse_filter_block},
        {"generation", parse_generation},
    };
    tpl_token tag = p->tok;
    sl__tpl_lex_next(p);
    for (size_t i = 0; i < SL_COUNT(statements); i++) {
        if (text_is(tag.text, tag.len, statements[i].name))
            return statements[i].parse(p, tag.at);
    }
    bool is_break = text_is(tag.text, tag.len, "break");
    if (is_break || text_is(tag.text, tag.len, "continue")) {
        if (p->n_loops == 0)
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, tag.at, "'%.*s' outside of a loop", (int)tag.len,
                             tag.text);
        return new_node(p, is_break ? TPL_BREAK : TPL_CONTINUE, tag.at);
    }
    bool ends =
        word_among(tag.text, tag.len,
                   "elif else endif endfor endset endmacro endwith endfilter endgeneration");
    sl__tpl_lex_fail(p, ends ? SL_ERR_SYNTAX : SL_ERR_UNSUPPORTED, tag.at, "%s '%.*s'",
                     ends ? "unexpected tag" : "unknown tag", (int)SL_MIN(tag.len, (size_t)60),
                     tag.text);
    return lost(p);
}

// Statements up to a tag named in ends, whose name is then the current token, or up to the end of
// the template where ends is NULL.
static tpl_node *parse_body(tpl_parser *p, const char *ends, tpl_node *parent) {
    tpl_node *first = NULL, **tail = &first;
    if (!enter(p))
        return NULL;
    while (!p->status) {
        tpl_token tok = p->tok;
        if (tok.kind == TK_END) {
            if (ends)
                sl__tpl_lex_fail(p, SL_ERR_SYNTAX, parent->at,
                                 "the block does not end (expected %s)", ends);
            break;
        }
        tpl_node *node;
        sl__tpl_lex_next(p);
        if (tok.kind == TK_TEXT) {
            node = text_node(p, TPL_TEXT, &tok);
        } else if (tok.kind == TK_VARIABLE_BEGIN) {
            node = new_node(p, TPL_PRINT, tok.at);
            node->a = adopt(p, node, parse_tuple(p, true, NULL, false));
            expect(p, TK_VARIABLE_END, "the end of the expression");
        } else {
            if (p->tok.kind != TK_NAME) {
                unexpected(p, "the name of a tag");
                break;
            }
            if (ends && is_among(p, ends))
                break;
            node = parse_statement(p);
            expect(p, TK_BLOCK_END, "the end of the tag");
        }
        append(p, parent, &tail, node);
    }
    p->depth--;
    return first;
}

// Calls of names: a macro of this template, or a function that exists.
static void check_calls(tpl_parser *p) {
    for (const tpl_node *call = p->calls; call && !p->status; call = call->c) {
        const tpl_node *name = call->a, *link = p->macros;
        while (link &&
               !(link->a->len == name->len && !memcmp(link->a->text, name->text, name->len)))
            link = link->next;
        if (link)
            continue;
        const tpl_callable *fn = sl__tpl_find_function(name->text, name->len);
        if (!fn) {
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, name->at, "unknown function '%.*s'",
                             (int)SL_MIN(name->len, 60u), name->text);
            return;
        }
        uint32_t n = 0;
        const tpl_node *first = call->b, *arg = first;
        for (; arg && arg->kind != TPL_KEYWORD; arg = arg->next)
            n++;
        const char *problem = sl__tpl_check_call(fn, n, arg);
        if (problem)
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, call->at, "function '%s' %s", fn->name, problem);
        else if (!strcmp(fn->name, "strftime_now") && first && first->kind == TPL_CONST_STR &&
                 !sl__tpl_strftime_ok(first->text, first->len))
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, first->at, "a directive of this time format");
    }
}

/* ---- public -------------------------------------------------------------------------------- */

sl_status sl_template_parse(const char *src, size_t len, sl_arena *arena, sl_template **out,
                            sl_error *err) {
    tpl_parser p = {.arena = arena, .err = err};
    tpl_node root = {.height = 1};
    *out = NULL;
    if (len > UINT32_MAX)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "chat template: %zu bytes, at most 4 GiB", len);
    if (!sl__tpl_lex_begin(&p, src, len))
        return p.status;
    sl_template *tpl = sl__tpl_lex_alloc(&p, sizeof(*tpl), _Alignof(sl_template));
    sl__tpl_lex_next(&p);
    tpl_node *body = parse_body(&p, NULL, &root);
    check_calls(&p);
    if (p.status)
        return p.status;
    *tpl = (sl_template){.source = p.src, .body = body};
    *out = tpl;
    return SL_OK;
}
