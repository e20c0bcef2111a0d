/* pipeline.h - where a thread is in a ring of shared-memory stages. */
#ifndef COMMON_PIPELINE_H
#define COMMON_PIPELINE_H

#include "common/ptx.h"

/*
 * Each stage has two barriers: "full" is waited for by consumers, "empty" by the producer. A consumer waits for the
 * parity `phase` at full; the producer, who starts with all stages empty, for `phase ^ 1` at empty.
 */
struct ring {
    uint32_t stage, phase;
};

DEVICE_FN struct ring ring_begin(void)
{
    struct ring ring;
    ring.stage = 0;
    ring.phase = 0;
    return ring;
}

DEVICE_FN void ring_advance(struct ring *ring, uint32_t stages)
{
    ring->stage += 1;
    if (ring->stage == stages) {
        ring->stage = 0;
        ring->phase ^= 1;
    }
}

#endif
