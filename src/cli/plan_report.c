/* A plan for people and for scripts: what a budget is spent on. See cli.h. */
#include <string.h>

#include "cli/cli.h"

void cli_plan_members(cli_json *json, const sl_plan_info *p) {
    cli_json_bool(json, "fits", p->fits);
    cli_json_uint(json, "budget_bytes", p->budget_bytes);
    cli_json_uint(json, "total_bytes", p->total_bytes);
    cli_json_uint(json, "smallest_bytes", p->smallest_bytes);
    cli_json_begin(json, "accounts", '{');
    for (uint32_t i = 0; i < p->n_accounts; i++)
        cli_json_uint(json, p->accounts[i].name, p->accounts[i].bytes);
    cli_json_end(json, '}');
    cli_json_uint(json, "ctx", p->n_ctx);
    cli_json_uint(json, "ctx_model", p->n_ctx_model);
    cli_json_uint(json, "threads", p->n_threads);
    cli_json_uint(json, "chunk", p->chunk);
    cli_json_uint(json, "model_bytes", p->model_bytes);
    cli_json_uint(json, "expert_bytes", p->expert_bytes);
    cli_json_uint(json, "experts", p->n_experts_total);
    cli_json_uint(json, "experts_per_token", p->n_experts_token);
    cli_json_uint(json, "hot_slots", p->hot_slots);
    cli_json_uint(json, "ring_slots", p->ring_slots);
    cli_json_uint(json, "tensors_streamed", p->n_tensors_streamed);
    cli_json_uint(json, "trunk_streamed_bytes", p->trunk_streamed_bytes);
    cli_json_uint(json, "token_read_bytes_low", p->token_read_bytes_low);
    cli_json_uint(json, "token_read_bytes_high", p->token_read_bytes_high);
    cli_json_bool(json, "in_place", p->in_place);
    cli_json_uint(json, "open_bytes", p->open_bytes);
    cli_json_uint(json, "drive_bytes_per_second", p->drive_bytes_per_second);
    cli_json_real(json, "tokens_per_second_low", p->tokens_per_second_low);
    cli_json_real(json, "tokens_per_second_high", p->tokens_per_second_high);
}

// The columns of the table: name, bytes for people, exact bytes, what for.
#define NAME_COLUMNS 11
#define PURPOSE_COLUMN 40

static void print_row(cli_out *out, const char *name, uint64_t bytes, const char *purpose) {
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX];
    cli_print(out, "  %-*s%10s%15s", NAME_COLUMNS, name, cli_bytes(a, bytes), cli_exact(b, bytes));
    if (*purpose) {
        cli_set_style(out, CLI_DIM);
        cli_print(out, "%*s", PURPOSE_COLUMN - 2 - NAME_COLUMNS - 25, "");
        cli_wrap(out, purpose, PURPOSE_COLUMN, PURPOSE_COLUMN);
        cli_set_style(out, CLI_PLAIN);
    }
    cli_puts(out, "\n");
}

static void print_range(cli_out *out, const char *low, const char *high) {
    if (strcmp(low, high) == 0)
        cli_puts(out, low);
    else
        cli_print(out, "%s to %s", low, high);
}

// Three digits are all that a forecast is worth.
static void print_rate(cli_out *out, double low, double high) {
    if (high > 0)
        cli_print(out, high < 100 ? "%.3g to %.3g tok/s" : "%.0f to %.0f tok/s", low, high);
    else
        cli_print(out, low < 100 ? "%.3g tok/s and more" : "%.0f tok/s and more", low);
}

static void print_facts(cli_out *out, const sl_plan_info *p) {
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX];
    cli_print(out, "Experts    %u of %u stay in memory (%s each); a token uses %u\n", p->hot_slots,
              p->n_experts_total, cli_bytes(a, p->expert_bytes), p->n_experts_token);
    if (p->n_tensors_streamed > 0)
        cli_print(out, "Trunk      %u tensors do not fit: %s are read again for every token\n",
                  p->n_tensors_streamed, cli_bytes(a, p->trunk_streamed_bytes));
    else
        cli_puts(out, "Trunk      stays in memory\n");
    cli_puts(out, "Reads      ");
    print_range(out, cli_bytes(a, p->token_read_bytes_low), cli_bytes(b, p->token_read_bytes_high));
    cli_puts(out, " for each token of an answer\n");
    if (p->drive_bytes_per_second > 0) {
        cli_print(out, "Speed      the drive reads %s/s", cli_bytes(a, p->drive_bytes_per_second));
        if (p->tokens_per_second_low > 0) {
            cli_puts(out, ", enough for ");
            print_rate(out, p->tokens_per_second_low, p->tokens_per_second_high);
        } else {
            cli_puts(out, "; nothing waits for it");
        }
        cli_puts(out, "\n");
    }
    if (p->in_place)
        cli_print(out,
                  "In place   no checksums: read from the checkpoint as downloaded\n"
                  "Opening    takes %s for a moment, before anything above is there\n",
                  cli_bytes(a, p->open_bytes));
    cli_print(out, "Runs with  context %u of %u, %u thread%s, prompts %u tokens at a time\n",
              p->n_ctx, p->n_ctx_model, p->n_threads, p->n_threads == 1 ? "" : "s", p->chunk);
}

void cli_plan_print(cli_out *out, const char *path, const sl_plan_info *p, const char *refusal) {
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX];
    cli_set_style(out, CLI_BOLD);
    cli_text(out, path, strlen(path));
    cli_set_style(out, CLI_PLAIN);
    cli_print(out, "\n%s of weights in a budget of %s (%s bytes)\n\n", cli_bytes(a, p->model_bytes),
              cli_bytes(b, p->budget_bytes), cli_exact((char[CLI_NUMBER_MAX]){0}, p->budget_bytes));
    uint64_t total = 0; // what it would take, also where it does not fit
    for (uint32_t i = 0; i < p->n_accounts; i++) {
        print_row(out, p->accounts[i].name, p->accounts[i].bytes, p->accounts[i].purpose);
        total += p->accounts[i].bytes;
    }
    cli_set_style(out, CLI_BOLD);
    print_row(out, "total", total, "");
    cli_set_style(out, CLI_PLAIN);
    cli_puts(out, "\n");
    if (p->fits) {
        print_facts(out, p);
        cli_print(out, "Smallest   --mem %s\n", cli_size(a, p->smallest_bytes));
    } else {
        cli_set_style(out, CLI_RED);
        cli_puts(out, "Does not fit: ");
        cli_set_style(out, CLI_PLAIN);
        cli_wrap(out, refusal, 14, 0);
        cli_print(out, "\nThe smallest budget that works here: --mem %s\n",
                  cli_size(a, p->smallest_bytes));
    }
}
