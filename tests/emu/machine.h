/*
 * The emulated machine: what there is of it (threads, warps, blocks, clusters, shared memory, barriers) and what its
 * parts know of each other. One launch at a time, one host thread.
 *
 *   sched    threads and when they run, events and when they happen, from the launch to the end
 *   sync     lanes of a warp that meet, block, named and cluster barriers, registers, dependent launch
 *   smem     shared memory: every access, and who is allowed to make it when
 *   clock    what each thread knows of what the others did before
 *   mbarrier, copy (cp.async), tma, wgmma: as in the PTX manual
 *   report   what is found wrong, in words; the timeline
 */
#ifndef EMU_MACHINE_H
#define EMU_MACHINE_H

#include "common/more.h" /* of the emulation: found in tests/emu */
#include "tests/emu/emu.h"
#include "tests/emu/fibre.h"

enum { LANES = 32, HARDWARE_BARRIERS = 16, MBARRIERS = 64 /* of a block */, CLUSTER_BLOCKS = 8, MAX_WARPS = 32 };

struct block;
struct warp;
struct thread;

/* Who did something, and where in the kernel; outlives the thread. */
struct origin {
    uint32_t block, thread;
    const void *where;
};

/* ---- Events: asynchronous work, at a time drawn when it begins ------------------------------------------------- */

/* First member of whatever is to happen; act() frees it. */
struct event {
    uint64_t due, order;
    void (*act)(struct event *event);
    struct origin origin;
};

/* Kinds of work whose delays are drawn alike: one run may have prompt loads and late stores, another the reverse. */
enum delay {
    DELAY_LOAD,
    DELAY_STORE_READ,
    DELAY_STORE_WRITE,
    DELAY_COPY,
    DELAY_WGMMA,
    DELAY_REMOTE,
    DELAY_KERNEL,
    DELAYS
};

uint64_t emu_due(enum delay kind);
void emu_schedule(struct event *event, uint64_t due, void (*act)(struct event *));
void emu_cancel(struct event *event); /* takes it out of the queue */

/* ---- Chance ---------------------------------------------------------------------------------------------------- */

uint64_t emu_random(void);
uint32_t emu_below(uint32_t count); /* 0 .. count-1 */

/* ---- Threads --------------------------------------------------------------------------------------------------- */

enum waits {
    WAITS_NOT,
    WAITS_LANES,     /* for the other lanes of its warp */
    WAITS_BLOCK,     /* at block_barrier */
    WAITS_NAMED,     /* at a named barrier; detail: its number */
    WAITS_CLUSTER,   /* at cluster_barrier */
    WAITS_MBARRIER,  /* detail: parity */
    WAITS_COPIES,    /* cp.async */
    WAITS_READ,      /* stores to have read shared memory; detail: groups that need not, here and below */
    WAITS_STORED,    /* stores to be done */
    WAITS_PRODUCTS,  /* wgmma */
    WAITS_REGISTERS, /* detail: as many for each thread */
    WAITS_KERNEL,    /* for the kernel before */
};

struct copies;
struct store_groups;
struct mbarrier;

struct thread {
    struct fibre fibre;
    struct warp *warp;
    uint32_t index; /* in the block */
    uint32_t slot;  /* in clocks */
    bool done;
    enum waits waits;
    uint32_t detail;
    struct mbarrier *barrier;    /* that it waits for */
    struct thread *next_waiting; /* at the same one */
    const void *where;           /* in the kernel: the latest call from there */
    uint32_t *clock;             /* clock.c; NULL without dynamic shared memory */
    struct copies *copies;
    struct store_groups *stores;
    struct remote *remote; /* arrivals on their way */
};

/* Lanes that come together at an instruction of the whole warp. */
struct meeting {
    int kind;
    bool (*act)(struct warp *warp);
    uint32_t detail;  /* must be the same in all lanes */
    uint32_t arrived; /* lanes */
    uint32_t value[LANES], lane[LANES], result[LANES];
    const void *pointer[LANES]; /* to something of the lane's, valid while they meet */
    const uint32_t *words[LANES];
};

struct warp {
    struct block *block;
    struct thread *threads; /* LANES of them */
    uint32_t index;
    uint32_t alive, ready; /* lanes */
    int queued;            /* where in the scheduler's list; -1: nowhere */
    int pace;              /* gets one turn of 2^pace */
    struct meeting meeting;
    struct products *products; /* wgmma.c */
    uint32_t registers;        /* of each thread */
    uint32_t registers_wanted; /* 0: not waiting for them */
    uint32_t register_changes;
};

/* ---- Barriers of whole warps ----------------------------------------------------------------------------------- */

struct gathering {
    uint32_t threads;               /* that have come */
    uint32_t wanted;                /* 0: all that are alive */
    bool relaxed;                   /* nobody learns what others know */
    uint32_t warps[CLUSTER_BLOCKS]; /* that have come, of each block */
    uint32_t *clock;
};

/* ---- Shared memory --------------------------------------------------------------------------------------------- */

/* The latest write to four bytes. */
struct word {
    uint32_t clock;  /* of the writer, at the write */
    uint16_t writer; /* slot + 1; 0: nobody has written */
    uint8_t landing; /* an asynchronous write is on its way here */
    uint8_t async;   /* the writer is the asynchronous proxy */
};

/* A part of shared memory that asynchronous work will still read. */
struct reading {
    struct reading *next;
    uint32_t begin, end;
    const char *what;
    struct origin origin;
};

struct mbarrier {
    struct block *block;
    uint32_t offset;
    bool live;
    uint32_t count, pending; /* arrivals: of a phase, still to come */
    int64_t bytes;           /* still to come */
    uint32_t phase;
    uint32_t slot, landings;        /* its own slot in clocks, and the time there */
    uint32_t init_slot, init_clock; /* who initialised it when */
    bool published;                 /* fenced after that */
    bool announced;                 /* and then the threads of the cluster have met, so all know of it */
    uint32_t *gathered, *completed; /* clocks: of all arrivals, of those until the latest phase's end */
    struct thread *waiting;
};

struct static_variable {
    struct static_variable *next;
    const void *key;
    uint32_t bytes;
    uint8_t *data;
};

struct smem {
    uint8_t *view; /* the kernel's addresses: no access */
    uint8_t *data; /* what is there */
    uint32_t bytes;
    struct word *words;
    uint8_t *barrier_at; /* for each 8 bytes: index + 1 of the mbarrier there */
    struct mbarrier barriers[MBARRIERS];
    int barrier_count;
    struct reading *readings;
    struct static_variable *variables;
};

/* The wgmmas of a warpgroup, as the first of its warps to come issued them. */
struct logged {
    uint32_t number, type, n, accumulate;
    uint64_t a, b;
};
struct log {
    struct logged entry[64];
};

/* ---- Blocks, clusters, the grid -------------------------------------------------------------------------------- */

struct block {
    struct cluster *cluster;
    uint32_t index, rank;
    uint32_t alive; /* threads */
    bool left;
    struct thread *threads;
    struct warp *warps;
    uint32_t warp_count;
    struct smem smem;
    struct gathering barrier, named[HARDWARE_BARRIERS];
    struct log logs[MAX_WARPS / 4];
    int64_t free_registers;
    uint32_t landings; /* asynchronous writes on their way here */
};

struct cluster {
    uint32_t place; /* among those that are on the machine */
    uint32_t size, alive;
    struct block *blocks;
    struct gathering barrier;
    uint32_t clock_words; /* of one half of a clock */
};

/* A member of the kernel's struct smem: for reports. */
struct emu_field {
    const char *name;
    uint32_t offset, bytes, stride; /* stride: of its first index */
};

struct machine {
    const struct fake_launch *launch;
    void (*kernel)(const void *args);
    const void *args;
    const char *kernel_file;
    const char *kernel_base;        /* where it was loaded */
    const struct emu_field *fields; /* ended by one without a name; or NULL */
    uint32_t threads, cluster_size, clusters, next_cluster;
    uint64_t now;
    struct thread *self;  /* NULL: an event happens */
    struct origin acting; /* whose */
    struct fibre host;
    bool meeting;       /* self acts for all lanes of its warp */
    bool kernel_before; /* is still running */
    bool over;          /* the launch has ended */
};
extern struct machine emu;

/* sched.c */
void emu_enter(const void *where);                 /* from the kernel into a function of the emulation */
void emu_block(enum waits waits, uint32_t detail); /* self stops until woken */
void emu_wake(struct thread *thread);
void emu_wake_warp(struct warp *warp);
void emu_give_way(void); /* others may run first */
#define ENTER() emu_enter(__builtin_return_address(0))

/* sync.c */
void emu_sync_block_begin(struct block *block);
void emu_sync_thread_end(struct thread *thread);
void emu_sync_block_end(struct block *block);
void emu_kernel_before_begin(void);
enum meeting_kind {
    MEET_WARP,
    MEET_EXCHANGE,
    MEET_BLOCK,
    MEET_NAMED,
    MEET_CLUSTER,
    MEET_RELEASE,
    MEET_TAKE,
    MEET_MATRICES,
    MEET_FENCE,
    MEET_PRODUCT,
    MEET_COMMIT,
    MEET_PRODUCTS,
    MEET_ELECT,
    MEET_VOTE,
};
/* The lanes of self's warp come together; the last one acts for all. When act returns false, all stop until the warp is
   woken. */
void emu_meet(enum meeting_kind kind, uint32_t detail, bool (*act)(struct warp *warp));
const char *emu_meeting_name(uint32_t kind);
/* All lanes of the warp wait. */
void emu_warp_waits(struct warp *warp, enum waits waits, uint32_t detail);

/* clock.c: two halves of clock_words each, what is seen and what of it is fenced for the asynchronous proxy. */
uint32_t *emu_clock_new(const struct cluster *cluster);
void emu_clock_join(const struct cluster *cluster, uint32_t *clock, const uint32_t *other);
void emu_clock_copy(const struct cluster *cluster, uint32_t *clock, const uint32_t *other);
void emu_clock_clear(const struct cluster *cluster, uint32_t *clock);
void emu_clock_tick(struct thread *thread);
void emu_clock_fence(struct thread *thread);
static inline uint32_t emu_clock_now(const struct thread *thread)
{
    return thread->clock ? thread->clock[thread->slot] : 0;
}
static inline bool emu_knows(const struct thread *thread, uint32_t slot, uint32_t time)
{
    return thread->clock == NULL || thread->clock[slot] >= time;
}
bool emu_knows_fenced(const struct thread *thread, uint32_t slot, uint32_t time);

/* smem.c */
void emu_smem_begin(struct block *block, uint32_t bytes);
void emu_smem_end(struct block *block);
/* Where in the block's shared memory a pointer of the kernel's points, `bytes` of which exist. */
uint32_t emu_offset(const struct block *block, const void *pointer, uint32_t bytes, uint32_t align);
void emu_smem_write(struct thread *thread, struct block *block, uint32_t offset, const void *data, uint32_t bytes);
void emu_smem_read(struct thread *thread, struct block *block, uint32_t offset, void *data, uint32_t bytes);
/* Asynchronous writes: announced, then done. `writer`: a slot; `time`: its clock then. */
void emu_landing_begin(struct block *block, uint32_t offset, uint32_t bytes, const char *what, bool async);
void emu_landing_end(struct block *block, uint32_t offset, uint32_t bytes, uint32_t writer, uint32_t time, bool async);
/* Whether a thread may read, or have read by the asynchronous proxy. Start with a zero `last`. */
struct check {
    const struct thread *thread;
    const struct block *block;
    const char *what;
    bool async;
    struct word last; /* that was found good */
};
void emu_check_read(struct check *check, uint32_t offset, uint32_t bytes);
/* What asynchronous work will read, until when nobody may write there. */
void emu_reading_begin(struct block *block, struct reading *reading);
void emu_reading_end(struct block *block, struct reading *reading);
/* The swizzling of addresses that TMA and wgmma share: span is 128, 64, 32, or 16 for none. */
static inline uint32_t emu_swizzled(uint32_t address, uint32_t span)
{
    return address ^ ((address >> 7 & (span / 16 - 1)) << 4);
}
enum {
    SMEM_BASE = 1024,            /* shared address of the dynamic part; the system has what is before */
    SMEM_VIEW_BYTES = 512 << 10, /* of a block's range without access, and where in it the dynamic part is */
    SMEM_VIEW_BASE = 128 << 10,
};

/* mbarrier.c */
struct mbarrier *emu_mbarrier_at(const struct thread *thread, struct block *block, const void *pointer);
void emu_mbarrier_bytes_come(struct mbarrier *barrier, uint32_t bytes);
void emu_mbarrier_copies_come(struct mbarrier *barrier);
void emu_remote_flush(struct thread *thread);

/* copy.c, tma.c, wgmma.c: at a thread's, a warp's end */
void emu_copies_end(struct thread *thread);
void emu_stores_end(struct thread *thread);
void emu_products_end(struct warp *warp);
void emu_tma_begin(void);
bool emu_memory_known(uint64_t address, uint64_t bytes, bool write);

/* report.c */
struct emu_text {
    char s[160];
};
struct emu_text emu_place(uint32_t offset); /* of shared memory: "full[2]", "d[1]+0x40" */
struct emu_text emu_who(uint32_t block, uint32_t thread);
struct emu_text emu_slot_text(const struct cluster *cluster, uint32_t slot);
struct origin emu_origin(void); /* of what happens now */
/* Calls what() for every block on the machine. */
void emu_each_block(void (*what)(struct block *block));
void emu_trace(const struct block *block, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emu_watch_faults(void);
void emu_print_waiting(void); /* all threads that wait, and for what; for debuggers too */
void emu_deadlock(void) __attribute__((noreturn));

#endif
