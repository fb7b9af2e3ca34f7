package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Examination describes a Redis server for headgate doctor.
type Examination struct {
	Version         string // with "valkey " before it for Valkey; "" if it cannot be read
	TooOld          bool   // older than the least version
	MaxMemoryPolicy string // "" if it cannot be read
	MaxMemory       int64  // in bytes; 0: no limit, or it cannot be read
	// Ahead is how far the clock of Redis is ahead of the clock of this process; it is negative if
	// the clock of Redis is behind. It is wrong by at most RoundTrip.
	Ahead, RoundTrip time.Duration
	// OtherFormat says that the keys in Redis with this prefix have another format. A node does not
	// use such a server.
	OtherFormat bool
	// InCluster reports whether the server is part of a cluster. Masters and Replicas are the
	// numbers of masters and replicas of the cluster in the URL. If the URL names no cluster, both
	// are 0.
	InCluster         bool
	Masters, Replicas int
	// WholeOnly reports whether the cluster rejects all calls while a slot has no server
	// (cluster-require-full-coverage).
	WholeOnly bool
	// Sentinels reports whether Sentinels named the server.
	Sentinels bool
}

// Examine connects to Redis once and returns an Examination. It only reads.
func Examine(ctx context.Context, config Config) (e Examination, err error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return e, err
	}
	options, err := config.options()
	if err != nil {
		return e, err
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = config.Timeout, config.Timeout, config.Timeout
	client := redis.NewUniversalClient(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.Ping(ctx).Err(); err != nil { // opens the connection
		return e, fmt.Errorf("redis: %w", err)
	}
	sent := time.Now()
	now, err := client.Time(ctx).Result()
	if err != nil {
		return e, fmt.Errorf("redis: ask for the time: %w", err)
	}
	e.RoundTrip = time.Since(sent)
	e.Ahead = now.Sub(sent.Add(e.RoundTrip / 2))
	// The user may lack the permission for the following calls.
	info, _ := client.Info(ctx, "server").Result()
	e.Version = infoField(info, "redis_version")
	e.TooOld = e.Version != "" && older(e.Version, minVersion)
	if valkey := infoField(info, "valkey_version"); valkey != "" {
		e.Version = "valkey " + valkey
	}
	found, _ := client.ConfigGet(ctx, "maxmemory-policy").Result()
	e.MaxMemoryPolicy = found["maxmemory-policy"]
	memory, _ := client.Info(ctx, "memory").Result()
	e.MaxMemory, _ = strconv.ParseInt(infoField(memory, "maxmemory"), 10, 64)
	format, err := client.Get(ctx, config.Prefix+"format").Result()
	e.OtherFormat = err == nil && format != config.format()
	e.Sentinels = options.MasterName != ""
	e.InCluster = infoField(info, "redis_mode") == "cluster"
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return e, e.ofCluster(ctx, cluster)
	}
	return e, nil
}

// ofCluster counts the masters and replicas of a cluster.
func (e *Examination) ofCluster(ctx context.Context, cluster *redis.ClusterClient) error {
	//lint:ignore SA1019 CLUSTER SHARDS needs Redis 7.0
	slots, err := cluster.ClusterSlots(ctx).Result() //nolint:staticcheck // the same
	if err != nil {
		return fmt.Errorf("redis: ask for the slots: %w", err)
	}
	masters, replicas := map[string]bool{}, map[string]bool{}
	for _, slot := range slots {
		for i, server := range slot.Nodes {
			if i == 0 {
				masters[server.Addr] = true
			} else {
				replicas[server.Addr] = true
			}
		}
	}
	e.InCluster, e.Masters, e.Replicas = true, len(masters), len(replicas)
	found, _ := cluster.ConfigGet(ctx, "cluster-require-full-coverage").Result()
	e.WholeOnly = found["cluster-require-full-coverage"] == "yes"
	return nil
}
