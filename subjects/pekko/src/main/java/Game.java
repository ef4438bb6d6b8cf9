/** All balls and all players, wherever they are. */
interface Game {
    /** Throws in the balls, half of them to each side. */
    void throwIn();

    /** May be asked at any time, of one thread at a time. */
    Totals totals();

    /** From now on players keep what they receive. */
    void stop();

    /** Sends what is still to be sent to StatsD; the game is over. */
    void close();
}
