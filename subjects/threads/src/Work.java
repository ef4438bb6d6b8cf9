/**
 * Burns CPU: a fixed amount of computing, which takes about the given time on a CPU of 3 GHz. The amount is fixed
 * because a JVM does not report a virtual thread's CPU time, and by the wall clock a preempted thread would do less
 * than another.
 */
final class Work {
    private static final long STEPS_PER_US = 600;
    private static volatile long sink;

    private Work() { }

    static void burn(long cpuNs) {
        long value = sink + 1;
        for (long step = cpuNs * STEPS_PER_US / 1000; step > 0; step--) {
            value ^= value >>> 33; // no compiler can fold several such steps into one, as it can additions and products
            value *= 0xff51afd7ed558ccdL;
        }
        sink = value;
    }
}
