namespace Powerband.Reflection;

/// <summary>What is counted of a game, most by each player alone, so that <see cref="Totals"/> are sums over players.</summary>
internal enum Count
{
    /// <summary>Balls that players received.</summary>
    Received,

    /// <summary>Balls that players sent on; those thrown in are not among them.</summary>
    Sent,

    /// <summary>Balls thrown in at the start.</summary>
    Thrown,

    /// <summary>Balls that players kept, once reflection was to stop.</summary>
    Caught,

    /// <summary>How often the balls caught had been received.</summary>
    CaughtCounts,

    /// <summary>Balls that a full mailbox turned away.</summary>
    Lost,

    /// <summary>How often those had been received.</summary>
    LostCounts,

    /// <summary>Counter increments handed to StatsD or prometheus-net.</summary>
    Updates,

    /// <summary>Of those, the ones that the socket refused.</summary>
    UpdateErrors,

    /// <summary>Lines of log that players asked for.</summary>
    LogLines,

    /// <summary>Lines that are in the log file.</summary>
    LogLinesWritten,
}
