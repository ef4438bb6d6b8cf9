/**
 * The counts of a game. Most are counted by each player alone, so that {@link Totals} are sums over players and JVMs.
 */
enum Count {
    /** Balls that players received. */
    RECEIVED,
    /** Balls that players sent on, without those thrown in. */
    SENT,
    /** Balls thrown in at the start. */
    THROWN,
    /** Balls that players kept once reflection was to stop. */
    CAUGHT,
    /** The sum of the receipt counts of the balls caught. */
    CAUGHT_COUNTS,
    /** Balls that a full mailbox or send queue turned away. */
    LOST,
    /** The sum of the receipt counts of the balls lost. */
    LOST_COUNTS,
    /** Counter increments handed to StatsD. */
    UPDATES,
    /** Of these increments, those that the socket refused. */
    UPDATE_ERRORS,
    /** Bytes that all threads have allocated. */
    ALLOCATED_BYTES,
    /** Bytes of heap in use after the last collection. */
    HEAP_AFTER_GC_BYTES;

    static final Count[] ALL = values();
}
