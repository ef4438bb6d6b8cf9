/** What a player does for each message so that StatsD counts it. */
interface Updates {
    /** Called by the player of this seat for each message that it received, and counted there. */
    void increment(Seat seat);
}
