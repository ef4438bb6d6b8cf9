namespace Powerband.Reflection;

/// <summary>
/// The counts of a game. Most are counted by each player alone, so that <see cref="Totals"/> are sums over players.
/// </summary>
internal enum Count
{
    /// <summary>Balls that players received.</summary>
    Received,

    /// <summary>Balls that players sent on, without those thrown in.</summary>
    Sent,

    /// <summary>Balls thrown in at the start.</summary>
    Thrown,

    /// <summary>Balls that players kept once reflection was to stop.</summary>
    Caught,

    /// <summary>The sum of the receipt counts of the balls caught.</summary>
    CaughtCounts,

    /// <summary>Balls that a full mailbox turned away.</summary>
    Lost,

    /// <summary>The sum of the receipt counts of the balls lost.</summary>
    LostCounts,

    /// <summary>Counter increments handed to StatsD or prometheus-net.</summary>
    Updates,

    /// <summary>Of these increments, those that the socket refused.</summary>
    UpdateErrors,

    /// <summary>Lines of log that players asked for.</summary>
    LogLines,

    /// <summary>Log lines that were written to the file.</summary>
    LogLinesWritten,
}
