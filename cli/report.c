#include "report.h"

#include "program.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_NAME_WIDTH = 120 };

const char *short_number(double value, char text[24])
{
    if (value < 0.0)
        strcpy(text, "-");
    else
        snprintf(text, 24, "%.*f", value < 10.0 ? 2 : value < 100.0 ? 1 : 0, value);
    return text;
}

void report_begin(struct report *report, int name_width)
{
    *report = (struct report){.name_width = name_width < MOST_NAME_WIDTH ? name_width : MOST_NAME_WIDTH};
    report->row_width = 20;
    printf("%-*s  %-*s %8s %7s %7s %6s %9s  %s\n", report->name_width, "case", report->row_width, "row", "us", "TFLOPS",
           "GB/s", "ratio", "error", "result");
}

void report_line(struct report *report, const struct report_line *line, const char *why)
{
    char us[24], tflops[24], gbps[24], ratio[24], error[24] = "-";
    if (line->error >= 0.0)
        snprintf(error, sizeof(error), line->error > 0.0 ? "%.2e" : "0", line->error);
    if (line->ratio >= 0.0)
        snprintf(ratio, sizeof(ratio), "%.3f", line->ratio);
    else
        strcpy(ratio, "-");
    progress_clear();
    printf("%-*s  %-*s %8s %7s %7s %6s %9s  %s\n", report->name_width, line->name, report->row_width, line->row,
           short_number(line->us, us), short_number(line->tflops, tflops), short_number(line->gbps, gbps), ratio, error,
           line->result);
    if (why)
        printf("    %s\n", why);
    fflush(stdout);
    report->passed += strcmp(line->result, "PASS") == 0;
    report->failed += strcmp(line->result, "FAIL") == 0;
}

void report_end(const struct report *report)
{
    progress_clear();
    printf("%" PRId64 " passed, %" PRId64 " failed\n", report->passed, report->failed);
}

void csv_field(FILE *file, const char *text, char after)
{
    const bool quote = strpbrk(text, ",\"\n") != NULL;
    if (quote)
        fputc('"', file);
    for (; *text; ++text) {
        if (*text == '"')
            fputc('"', file);
        fputc(*text, file);
    }
    if (quote)
        fputc('"', file);
    fputc(after, file);
}
