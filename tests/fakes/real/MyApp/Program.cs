// What docs/dotnet-servers.md starts: ASP.NET Core with a handler that blocks a thread of the pool for 50 ms.
using System.Runtime;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Options;

var builder = WebApplication.CreateBuilder(args);
builder.Logging.ClearProviders();
builder.Services.Configure<KestrelServerOptions>(builder.Configuration.GetSection("Kestrel"));
var app = builder.Build();
ThreadPool.GetMinThreads(out int least, out _);
ThreadPool.GetMaxThreads(out int most, out _);
var limits = app.Services.GetRequiredService<IOptions<KestrelServerOptions>>().Value.Limits;
Console.WriteLine(
    $"least={least} most={most} server={GCSettings.IsServerGC} collects={GCSettings.LatencyMode} "
    + $"heap={GC.GetGCMemoryInfo().TotalAvailableMemoryBytes} connections={limits.MaxConcurrentConnections}");
app.MapGet("/", () =>
{
    Thread.Sleep(50);
    return "ok";
});
app.Run();
