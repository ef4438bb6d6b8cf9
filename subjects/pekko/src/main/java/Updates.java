/** What a player does for each message to have StatsD count it. */
interface Updates {
    /** Called by the player of this seat for each message that it received, after counting it there. */
    void increment(Seat seat);
}
