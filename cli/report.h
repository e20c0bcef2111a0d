/* The aligned lines of selftest and bench: case, row, us, TFLOPS, GB/s, ratio, error, PASS or FAIL. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What is negative is not known and printed as "-". */
struct report_line {
    const char *name, *row;
    double us, tflops, gbps, ratio, error;
    const char *result; /* "PASS", "FAIL", "-" */
};

#define REPORT_LINE_INIT                                                                                               \
    {                                                                                                                  \
        "", "-", -1.0, -1.0, -1.0, -1.0, -1.0, "-"                                                                     \
    }

struct report {
    int name_width, row_width;
    int64_t passed, failed;
};

/* Prints the head line; `name_width` of the widest case to come. */
void report_begin(struct report *report, int name_width);

/* Prints a line. FAIL lines are followed by `why` on a line of its own (NULL: none). */
void report_line(struct report *report, const struct report_line *line, const char *why);

/* "N passed, N failed". */
void report_end(const struct report *report);

/* A number in few digits: "3.29", "1315", "-" when negative. */
const char *short_number(double value, char text[24]);

/* A field of a CSV file, quoted if it has to be. */
void csv_field(FILE *file, const char *text, char after);

#endif
