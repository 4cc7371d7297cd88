/* The bodies of the small routes: models, tokens, counts. See api_format.h. */
#include "server/api_internal.h"

#include <string.h>

void sl_api_write_count(sl_buf *out, uint64_t n_tokens) {
    sl_buf_printf(out, "{\"input_tokens\":%llu}", (unsigned long long)n_tokens);
}

void sl_api_write_tokens(sl_buf *out, const uint32_t *ids, size_t n) {
    sl_buf_add_text(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++)
        sl_buf_printf(out, i ? ",%u" : "%u", ids[i]);
    sl_buf_printf(out, "],\"count\":%zu}", n);
}

void sl_api_write_content(sl_buf *out, const char *bytes, size_t n) {
    sl_buf_add_text(out, "{\"content\":");
    sl_api_add_string(out, bytes, n);
    sl_buf_add_char(out, '}');
}

// Days since 1970 to a date, as in H. Hinnant, "chrono-compatible low-level date algorithms".
static void add_time(sl_buf *out, int64_t unix_seconds) {
    int64_t seconds = unix_seconds < 0 ? 0 : unix_seconds % 86400;
    int64_t z = (unix_seconds < 0 ? 0 : unix_seconds / 86400) + 719468;
    int64_t era = z / 146097, day_of_era = z % 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted = (5 * day_of_year + 2) / 153; // March is 0
    int64_t day = day_of_year - (153 * shifted + 2) / 5 + 1;
    int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2);
    sl_buf_printf(out, "\"%04lld-%02lld-%02lldT%02lld:%02lld:%02lldZ\"", (long long)year,
                  (long long)month, (long long)day, (long long)(seconds / 3600),
                  (long long)(seconds / 60 % 60), (long long)(seconds % 60));
}

// OpenAI's members, then Anthropic's; ours is the context.
void sl_api_write_model(sl_buf *out, const char *name, int64_t created, uint32_t n_ctx) {
    sl_buf_add_text(out, "{\"id\":");
    sl_api_add_string(out, name, strlen(name));
    sl_buf_printf(
        out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"local\",\"type\":\"model\"",
        (long long)created);
    sl__add_member(out, "display_name", name);
    sl_buf_add_text(out, ",\"created_at\":");
    add_time(out, created);
    sl_buf_printf(out, ",\"max_input_tokens\":%u}", n_ctx);
}

void sl_api_write_models(sl_buf *out, const char *const *names, size_t n, int64_t created,
                         uint32_t n_ctx) {
    sl_buf_add_text(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            sl_buf_add_char(out, ',');
        sl_api_write_model(out, names[i], created, n_ctx);
    }
    sl_buf_add_text(out, "],\"has_more\":false");
    sl__add_member(out, "first_id", n ? names[0] : NULL);
    sl__add_member(out, "last_id", n ? names[n - 1] : NULL);
    sl_buf_add_char(out, '}');
}
