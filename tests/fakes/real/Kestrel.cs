// A Kestrel server with one limit, by its mode; everything else is ASP.NET Core's own.
using System;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.Logging;

var (port, mode) = (int.Parse(args[0]), args[1]);
var builder = WebApplication.CreateSlimBuilder();
builder.Logging.ClearProviders();
builder.WebHost.ConfigureKestrel(kestrel =>
{
    kestrel.ListenLocalhost(port);
    if (mode == "connections") kestrel.Limits.MaxConcurrentConnections = 4;
});
var app = builder.Build();
var held = new object();
var slots = new SemaphoreSlim(4);
byte[][] kept = new byte[mode == "garbage" ? 2_000_000 : 0][];

static void Compute(double ms)
{
    long until = Stopwatch.GetTimestamp() + (long)(ms * Stopwatch.Frequency / 1000);
    while (Stopwatch.GetTimestamp() < until) { }
}

async Task<string> Answer()
{
    switch (mode)
    {
        case "sleep":
            Thread.Sleep(50);
            break;
        case "lock":
            lock (held) Thread.Sleep(2);
            break;
        case "semaphore":
            await slots.WaitAsync();
            try { await Task.Delay(20); }
            finally { slots.Release(); }
            break;
        case "cpu":
            Compute(1);
            break;
        case "garbage": // objects that live long, so that generation 2 is what must be collected
            for (int at = 0; at < 2_000; at++) kept[Random.Shared.Next(kept.Length)] = new byte[100];
            if (Random.Shared.Next(20) == 0) GC.Collect();
            break;
        default:
            await Task.Delay(20);
            break;
    }
    return "ok";
}

app.MapGet("/", Answer);
app.Run();
