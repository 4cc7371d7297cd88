/* The lexer of chat templates: text and tags to tokens, with the white-space rules of trim_blocks and
 * lstrip_blocks. It also carries the state of the parser, of which it is the lower half. */
#ifndef SL_TEXT_TEMPLATE_LEX_H
#define SL_TEXT_TEMPLATE_LEX_H

#include "text/template_internal.h"

/* Nesting of the parser itself: brackets and blocks, also those that leave no node behind. */
#define TPL_DEPTH_MAX SL_TEMPLATE_HEIGHT_MAX

typedef enum tpl_token_kind {
    TK_END,
    TK_TEXT,
    TK_VARIABLE_BEGIN,
    TK_VARIABLE_END,
    TK_BLOCK_BEGIN,
    TK_BLOCK_END,
    TK_NAME,
    TK_STR,
    TK_INT,
    TK_FLOAT,
    TK_ADD,
    TK_SUB,
    TK_MUL,
    TK_DIV,
    TK_FLOOR_DIV,
    TK_MOD,
    TK_POW,
    TK_TILDE,
    TK_EQ,
    TK_NE,
    TK_LT,
    TK_LE,
    TK_GT,
    TK_GE,
    TK_ASSIGN,
    TK_DOT,
    TK_COLON,
    TK_PIPE,
    TK_COMMA,
    TK_LPAREN,
    TK_RPAREN,
    TK_LBRACKET,
    TK_RBRACKET,
    TK_LBRACE,
    TK_RBRACE,
} tpl_token_kind;

typedef struct tpl_token {
    tpl_token_kind kind;
    size_t at;
    const char *text; // TEXT, NAME, STR (decoded)
    size_t len;
    int64_t i;
    double f;
} tpl_token;

typedef enum tpl_lex_mode { LEX_DATA, LEX_VARIABLE, LEX_BLOCK } tpl_lex_mode;

typedef struct tpl_parser {
    const char *src;
    size_t len, pos;
    sl_arena *arena;
    sl_error *err;
    sl_status status; // of the first error
    tpl_token tok;    // the current token
    tpl_lex_mode mode;
    char brackets[TPL_DEPTH_MAX]; // the closing ones that are due
    uint32_t n_brackets;
    uint32_t depth;
    uint32_t n_loops;  // for statements around this place, in the same macro
    uint32_t n_macros; // macros around this place
    tpl_node *calls;   // of names, through c
    tpl_node *macros;  // TPL_OPERAND, through next; a is the macro
    tpl_node lost;     // stands for every node after an error, so that nobody looks for NULL
} tpl_parser;

/* Record an error with its place; only the first one counts. After it every token is the end, so that
 * all loops of the parser stop. */
void sl__tpl_lex_fail(tpl_parser *p, sl_status status, size_t at, const char *fmt, ...)
    SL_PRINTF(4, 5);
/* From the arena; NULL after an error. */
void *sl__tpl_lex_alloc(tpl_parser *p, size_t bytes, size_t align);
/* Take the source: a copy with \n as the only newline and without the last one. False after an error. */
bool sl__tpl_lex_begin(tpl_parser *p, const char *src, size_t len);
/* The next token goes to p->tok. */
void sl__tpl_lex_next(tpl_parser *p);
/* True if an = that is no == follows the current token. */
bool sl__tpl_lex_assign_follows(const tpl_parser *p);
/* True if the name `in` follows the current token. */
bool sl__tpl_lex_in_follows(const tpl_parser *p);

#endif
