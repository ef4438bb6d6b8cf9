/** All balls and all players, in whichever JVM they are. */
interface Game {
    /** Throws in the balls, half of them to each side. */
    void throwIn();

    /** The current totals. May be called at any time, by one thread at a time. */
    Totals totals();

    /** Stops the reflection: players keep the balls that they receive from now on. */
    void stop();

    /** Sends what is still to be sent to StatsD, once the game is over. */
    void close();
}
