/** What is counted of a game. Most by each player alone, so that {@link Totals} are sums over players and JVMs. */
enum Count {
    /** Balls that players received. */
    RECEIVED,
    /** Balls that players sent on; those thrown in are not among them. */
    SENT,
    /** Balls thrown in at the start. */
    THROWN,
    /** Balls that players kept, once reflection was to stop. */
    CAUGHT,
    /** How often the balls caught had been received. */
    CAUGHT_COUNTS,
    /** Balls that a full mailbox or send queue turned away. */
    LOST,
    /** How often those had been received. */
    LOST_COUNTS,
    /** Counter increments handed to StatsD. */
    UPDATES,
    /** Of those, the ones that the socket refused. */
    UPDATE_ERRORS,
    /** Bytes that all threads have allocated. */
    ALLOCATED_BYTES,
    /** Bytes of heap in use after the last collection. */
    HEAP_AFTER_GC_BYTES;

    static final Count[] ALL = values();
}
