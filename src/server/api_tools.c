/* Tools, the choice among them, and the form of the answer: what becomes a constraint. See api_internal.h. */
#include "server/api_internal.h"

#include <string.h>

/* ---- tools ------------------------------------------------------------------------------------------------------- */

// One tool, wherever the dialect has its parts.
typedef struct tool_parts {
    sl_api_text type, name, description;
    const sl_json *function, *schema;
    bool strict;
} tool_parts;

#define PART(member) offsetof(tool_parts, member)
#define TOOL_FIELDS(parameters)                                                                    \
    {.name = "name", .read = sl__read_text, .offset = PART(name), .required = true},               \
        {.name = "description", .read = sl__read_text, .offset = PART(description)},               \
        {.name = (parameters), .read = sl__read_node, .offset = PART(schema)}, {                   \
        .name = "strict", .read = sl__read_bool, .offset = PART(strict)                            \
    }
#define TABLE(name, fields) static const api_table name = {fields, SL_COUNT(fields), NULL}

static const api_field outer_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = PART(type), .required = true},
    {.name = "function", .read = sl__read_node, .offset = PART(function), .required = true},
};
static const api_field function_fields[] = {TOOL_FIELDS("parameters")};
static const api_field flat_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = PART(type), .required = true},
    TOOL_FIELDS("parameters"),
};
static const api_field anthropic_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = PART(type)},
    TOOL_FIELDS("input_schema"),
};
TABLE(outer_table, outer_fields);
TABLE(function_table, function_fields);
TABLE(flat_table, flat_fields);
TABLE(anthropic_table, anthropic_fields);

static sl_status check_type(api_reader *r, const sl_json *v, const char *expected) {
    const sl_json *type = sl_json_member_set(v, "type");
    if (!type || sl_json_text_is(type, expected))
        return SL_OK; // absent where it must be there: the table says so
    (void)sl__req_enter(r, "type");
    if (type->type != SL_JSON_STRING)
        return sl__req_wrong_type(r, type, "a string");
    return sl__req_fail(r, SL_API_ERR_UNSUPPORTED,
                        "tools of type '%.40s' are not supported, only '%s'", type->text, expected);
}

static bool name_is_good(const sl_api_text *name) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    return name->len > 0 && name->len <= SL_API_TOOL_NAME_MAX &&
           strspn(name->text, good) == name->len;
}

static bool same(const sl_api_text *a, const sl_api_text *b) {
    return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static sl_status check_name(api_reader *r, const sl_api_text *name) {
    const sl_api_request *req = r->req;
    size_t mark = sl__req_enter(r, "name");
    if (!name_is_good(name))
        return sl__req_fail(r, SL_API_ERR_INVALID,
                            "expected 1 to %d letters, digits, '_', '-' or '.', found '%.40s'",
                            SL_API_TOOL_NAME_MAX, name->text);
    for (size_t i = 0; i < req->n_tools; i++)
        if (same(&req->tools[i].name, name))
            return sl__req_fail(r, SL_API_ERR_INVALID, "two tools are called '%.40s'", name->text);
    sl__req_leave(r, mark);
    return SL_OK;
}

static const char no_parameters[] = "{\"type\":\"object\",\"properties\":{}}";

static sl_status write_json(api_reader *r, const sl_json *v, sl_api_text *out) {
    sl_buf buf;
    sl_status st = sl__req_text_begin(r, &buf);
    if (st)
        return st;
    sl__add_json(&buf, v);
    return sl__req_text_end(r, &buf, out);
}

// A tool as templates know it, for tools_json.
static void add_tool(sl_buf *out, const tool_parts *parts, const sl_api_tool *tool) {
    sl_buf_add_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
    sl_api_add_string(out, tool->name.text, tool->name.len);
    if (parts->description.text) {
        sl_buf_add_text(out, ",\"description\":");
        sl_api_add_string(out, parts->description.text, parts->description.len);
    }
    sl_buf_add_text(out, ",\"parameters\":");
    sl_buf_add(out, tool->schema.text, tool->schema.len);
    sl_buf_add_text(out, "}}");
}

static sl_status read_tool(api_reader *r, const sl_json *v, const api_field *f, tool_parts *parts,
                           sl_api_tool *tool) {
    bool chat = f->read == sl__read_tools_chat, anthropic = f->read == sl__read_tools_messages;
    const char *schema_key = anthropic ? "input_schema" : "parameters";
    sl_status st = check_type(r, v, anthropic ? "custom" : "function");
    if (st)
        return st;
    if ((st = sl__req_fields(r, v,
                             chat        ? &outer_table
                             : anthropic ? &anthropic_table
                                         : &flat_table,
                             parts)))
        return st;
    if (chat) {
        (void)sl__req_enter(r, "function");
        if ((st = sl__req_fields(r, parts->function, &function_table, parts)))
            return st;
    }
    if ((st = check_name(r, &parts->name)))
        return st;
    (void)sl__req_enter(r, schema_key);
    if (anthropic && !parts->schema)
        return sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
    if (parts->schema && parts->schema->type != SL_JSON_OBJECT)
        return sl__req_wrong_type(r, parts->schema, "an object, a JSON schema");
    tool->name = parts->name;
    tool->strict = parts->strict;
    tool->schema = (sl_api_text){no_parameters, sizeof(no_parameters) - 1};
    return parts->schema ? write_json(r, parts->schema, &tool->schema) : SL_OK;
}

static sl_status read_tools(api_reader *r, const sl_json *v, const api_field *f,
                            const char *schema_path) {
    sl_api_request *req = r->req;
    sl_buf buf;
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "an array");
    if (v->n_children > SL_API_TOOLS_MAX)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected at most %d tools, found %u",
                            SL_API_TOOLS_MAX, v->n_children);
    tool_parts *parts = sl__req_alloc(r, v->n_children + (size_t)1, sizeof(*parts));
    sl_api_tool *tools = parts ? sl__req_alloc(r, v->n_children + (size_t)1, sizeof(*tools)) : NULL;
    if (!tools)
        return SL_ERR_MEMORY;
    req->tools = tools;
    req->tools_path = schema_path;
    for (const sl_json *m = v->child; m; m = m->next) {
        size_t i = req->n_tools, mark = sl__req_enter_index(r, i);
        sl_status st = read_tool(r, m, f, &parts[i], &tools[i]);
        if (st)
            return st;
        req->n_tools++;
        sl__req_leave(r, mark);
    }
    if (req->n_tools == 0)
        return SL_OK;
    sl_status st = sl__req_text_begin(r, &buf);
    if (st)
        return st;
    for (size_t i = 0; i < req->n_tools; i++) {
        sl_buf_add_char(&buf, i ? ',' : '[');
        add_tool(&buf, &parts[i], &tools[i]);
    }
    sl_buf_add_char(&buf, ']');
    return sl__req_text_end(r, &buf, &req->tools_json);
}

sl_status sl__read_tools_chat(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)into;
    return read_tools(r, v, f, "tools[%zu].function.parameters");
}

sl_status sl__read_tools_responses(api_reader *r, const sl_json *v, const api_field *f,
                                   void *into) {
    (void)into;
    return read_tools(r, v, f, "tools[%zu].parameters");
}

sl_status sl__read_tools_messages(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)into;
    return read_tools(r, v, f, "tools[%zu].input_schema");
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static sl_status name_tool(api_reader *r, const sl_api_text *name) {
    for (size_t i = 0; i < r->req->n_tools; i++)
        if (same(&r->req->tools[i].name, name)) {
            r->req->tool_choice = SL_API_TOOL_NAMED;
            r->req->named_tool = i;
            return SL_OK;
        }
    return sl__req_fail(r, SL_API_ERR_INVALID, "there is no tool '%.40s'", name->text);
}

static sl_status choose(api_reader *r, sl_api_tool_choice choice) {
    if (choice == SL_API_TOOL_REQUIRED && r->req->n_tools == 0)
        return sl__req_fail(r, SL_API_ERR_INVALID, "asks for a tool call, and there are no tools");
    r->req->tool_choice = choice;
    return SL_OK;
}

typedef struct choice_parts {
    sl_api_text type, name;
    const sl_json *function;
    bool disable_parallel;
} choice_parts;

#define CHOICE(member) offsetof(choice_parts, member)
static const api_field choice_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = CHOICE(type), .required = true},
    {.name = "name", .read = sl__read_text, .offset = CHOICE(name)},
    {.name = "function", .read = sl__read_node, .offset = CHOICE(function)},
};
static const api_field choice_name_fields[] = {
    {.name = "name", .read = sl__read_text, .offset = CHOICE(name), .required = true},
};
static const api_field choice_messages_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = CHOICE(type), .required = true},
    {.name = "name", .read = sl__read_text, .offset = CHOICE(name)},
    {.name = "disable_parallel_tool_use",
     .read = sl__read_bool,
     .offset = CHOICE(disable_parallel),
     .set = SL_API_SET_PARALLEL},
};
TABLE(choice_table, choice_fields);
TABLE(choice_name_table, choice_name_fields);
TABLE(choice_messages_table, choice_messages_fields);

// {"type":"function","function":{"name":...}}, or of responses {"type":"function","name":...}
static sl_status choose_function(api_reader *r, const sl_json *v) {
    choice_parts parts = {0};
    const char *type = sl__req_type(r, v);
    if (!type)
        return SL_ERR_ARGUMENT;
    if (strcmp(type, "function") != 0) {
        (void)sl__req_enter(r, "type");
        return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "'%.40s' is not supported, only 'function'",
                            type);
    }
    sl_status st = sl__req_fields(r, v, &choice_table, &parts);
    if (st)
        return st;
    if (r->req->dialect == SL_API_CHAT) {
        (void)sl__req_enter(r, "function");
        if (!parts.function)
            return sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
        if ((st = sl__req_fields(r, parts.function, &choice_name_table, &parts)))
            return st;
    }
    (void)sl__req_enter(r, "name");
    if (!parts.name.text)
        return sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
    return name_tool(r, &parts.name);
}

static sl_status choose_anthropic(api_reader *r, const sl_json *v) {
    choice_parts parts = {0};
    sl_status st = sl__req_fields(r, v, &choice_messages_table, &parts);
    if (st)
        return st;
    r->req->parallel_tool_calls = !parts.disable_parallel;
    const char *type = parts.type.text;
    if (strcmp(type, "auto") == 0)
        return choose(r, SL_API_TOOL_AUTO);
    if (strcmp(type, "any") == 0)
        return choose(r, SL_API_TOOL_REQUIRED);
    if (strcmp(type, "none") == 0)
        return choose(r, SL_API_TOOL_NONE);
    if (strcmp(type, "tool") != 0) {
        (void)sl__req_enter(r, "type");
        return sl__req_fail(r, SL_API_ERR_INVALID,
                            "expected auto, any, tool or none, found '%.40s'", type);
    }
    (void)sl__req_enter(r, "name");
    if (!parts.name.text)
        return sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
    return name_tool(r, &parts.name);
}

sl_status sl__read_tool_choice(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    if (r->req->dialect == SL_API_MESSAGES || r->req->dialect == SL_API_COUNT_TOKENS)
        return choose_anthropic(r, v);
    if (v->type == SL_JSON_OBJECT)
        return choose_function(r, v);
    if (sl_json_text_is(v, "auto"))
        return choose(r, SL_API_TOOL_AUTO);
    if (sl_json_text_is(v, "none"))
        return choose(r, SL_API_TOOL_NONE);
    if (sl_json_text_is(v, "required"))
        return choose(r, SL_API_TOOL_REQUIRED);
    if (v->type != SL_JSON_STRING)
        return sl__req_wrong_type(r, v, "auto, none, required or an object");
    return sl__req_fail(r, SL_API_ERR_INVALID,
                        "expected auto, none, required or an object, found '%.40s'", v->text);
}

/* ---- the form of the answer -------------------------------------------------------------------------------------- */

typedef struct format_parts {
    sl_api_text type, name, description;
    const sl_json *json_schema, *schema;
    bool strict;
} format_parts;

#define FORMAT(member) offsetof(format_parts, member)
#define SCHEMA_FIELDS                                                                              \
    {.name = "name", .read = sl__read_text, .offset = FORMAT(name)},                               \
        {.name = "description", .read = sl__read_text, .offset = FORMAT(description)},             \
        {.name = "schema", .read = sl__read_node, .offset = FORMAT(schema)}, {                     \
        .name = "strict", .read = sl__read_bool, .offset = FORMAT(strict)                          \
    }
static const api_field format_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = FORMAT(type), .required = true},
    {.name = "json_schema", .read = sl__read_node, .offset = FORMAT(json_schema)},
    {.name = "schema", .read = sl__read_node, .offset = FORMAT(schema)},
};
static const api_field schema_fields[] = {SCHEMA_FIELDS};
static const api_field format_flat_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = FORMAT(type), .required = true},
    SCHEMA_FIELDS,
};
TABLE(format_table, format_fields);
TABLE(schema_table, schema_fields);
TABLE(format_flat_table, format_flat_fields);

// The reader is where the schema is.
static sl_status constrain(api_reader *r, const sl_json *schema) {
    size_t mark = sl__req_enter(r, "schema");
    if (!schema)
        return sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
    if (schema->type != SL_JSON_OBJECT)
        return sl__req_wrong_type(r, schema, "an object, a JSON schema");
    r->req->constraint = SL_API_CONSTRAINT_JSON_SCHEMA;
    r->req->schema_path = sl__req_path(r);
    if (!r->req->schema_path)
        return SL_ERR_MEMORY;
    sl__req_leave(r, mark);
    return write_json(r, schema, &r->req->schema);
}

static sl_status read_format(api_reader *r, const sl_json *v, bool nested) {
    format_parts parts = {0};
    sl_status st = sl__req_fields(r, v, nested ? &format_table : &format_flat_table, &parts);
    if (st)
        return st;
    const char *type = parts.type.text;
    bool anthropic = r->req->dialect == SL_API_MESSAGES || r->req->dialect == SL_API_COUNT_TOKENS;
    if (!anthropic && strcmp(type, "text") == 0)
        return SL_OK;
    if (!anthropic && strcmp(type, "json_object") == 0) {
        if (parts.schema)
            return constrain(r, parts.schema);
        r->req->constraint = SL_API_CONSTRAINT_JSON_OBJECT;
        r->req->schema_path = sl__req_path(r);
        return r->req->schema_path ? SL_OK : SL_ERR_MEMORY;
    }
    if (strcmp(type, "json_schema") != 0) {
        (void)sl__req_enter(r, "type");
        return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "expected %s, found '%.40s'",
                            anthropic ? "json_schema" : "text, json_object or json_schema", type);
    }
    if (!nested)
        return constrain(r, parts.schema);
    size_t mark = sl__req_enter(r, "json_schema");
    if (!parts.json_schema)
        return sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
    parts.schema = NULL;
    if ((st = sl__req_fields(r, parts.json_schema, &schema_table, &parts)) ||
        (st = constrain(r, parts.schema)))
        return st;
    sl__req_leave(r, mark);
    return SL_OK;
}

sl_status sl__read_format_chat(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    return read_format(r, v, true);
}

sl_status sl__read_format_schema(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    return read_format(r, v, false);
}
