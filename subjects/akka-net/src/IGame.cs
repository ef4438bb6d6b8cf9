namespace Powerband.Reflection;

/// <summary>All balls and all players, wherever they are.</summary>
internal interface IGame
{
    /// <summary>Balls that are still to be thrown in.</summary>
    long Unthrown { get; }

    /// <summary>Throws in all balls, half of them to each side.</summary>
    void ThrowIn();

    /// <summary>May be asked at any time.</summary>
    Totals Totals();

    /// <summary>From then on players keep what they receive.</summary>
    void Stop();
}
