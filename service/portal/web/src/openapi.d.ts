// Made by `make portal` from the API's document; not to be edited.

export type Json = string | number | boolean | null | Json[] | {
    [key: string]: Json;
};
export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** AccuracyReport */
        AccuracyReport: {
            latency: {
                [key: string]: Json;
            };
            memory: {
                [key: string]: Json;
            };
        };
        /** AllCopies */
        AllCopies: {
            count: number;
            gpus: number;
            kv_cache_tokens: number;
            output_tokens_per_s: number | null;
            requests_per_s: number | null;
        };
        /** Alternative */
        Alternative: {
            config: components["schemas"]["EngineConfig"];
            estimate: components["schemas"]["ShortEstimate"];
            label: string;
            replicas: components["schemas"]["Replicas"];
            trade_off: string;
        };
        /** ApiKey */
        ApiKey: {
            created_at: string;
            created_by: string;
            expires_at?: string | null;
            id: string;
            last_used_at?: string | null;
            name: string;
            prefix: string;
            revoked_at?: string | null;
            schema_version?: number;
            scopes: ("admin" | "read" | "recommend" | "validate")[];
            tenant: string;
        };
        /** ApiKeyList */
        ApiKeyList: {
            items: components["schemas"]["ApiKey"][];
        };
        /** ApiKeyRequest */
        ApiKeyRequest: {
            expires_in_s?: number | null;
            name: string;
            scopes: ("admin" | "read" | "recommend" | "validate")[];
        };
        /** AuditEvent */
        AuditEvent: {
            action: string;
            actor: string;
            at: string;
            id: string;
            request_id: string;
            status: number;
            target: string;
        };
        /** AuditPage */
        AuditPage: {
            items: components["schemas"]["AuditEvent"][];
            next_cursor: string | null;
        };
        /** Baseline */
        Baseline: {
            engines?: components["schemas"]["BaselineFigures"][];
            fingerprints?: string[];
            name: string;
        };
        /** BaselineFigures */
        BaselineFigures: {
            engine: string;
            figures: {
                [key: string]: number;
            };
        };
        /** BatchArrivals */
        BatchArrivals: {
            /** @enum {string} */
            kind: "batch";
            num_requests: number;
        };
        /** Binding */
        Binding: {
            constraint: string;
            detail: string;
        };
        /** CalibratedBy */
        CalibratedBy: {
            measurement_ids: string[];
            version: string;
        };
        /** CalibratedRange */
        CalibratedRange: {
            in_flight: [
                number,
                number
            ] | null;
            output_tokens: [
                number,
                number
            ];
            prompt_tokens: [
                number,
                number
            ];
            requests_per_s: [
                number,
                number
            ] | null;
            schema_version?: number;
        };
        /** Calibration */
        Calibration: {
            band_factors: {
                [key: string]: number;
            };
            coefficients_version: string;
            configuration: string;
            created_at: string;
            engine_version: string;
            factors: {
                [key: string]: number;
            };
            gpu: string;
            key: {
                [key: string]: string | number | boolean;
            };
            measurement_ids: string[];
            model: string;
            precision: string;
            range: components["schemas"]["CalibratedRange"] | null;
            reason: string;
            residuals: {
                [key: string]: components["schemas"]["MetricResidual"];
            };
            schema_version?: number;
            /** @enum {string} */
            status: "refused" | "used";
            tensor_parallel_size: number;
            version: string;
        };
        /** CalibrationList */
        CalibrationList: {
            items: components["schemas"]["Calibration"][];
        };
        /** CheckedEngine */
        CheckedEngine: {
            config: components["schemas"]["EngineConfig"];
            figures: {
                [key: string]: number;
            };
            fits: boolean | null;
            location: components["schemas"]["Location"] | null;
            model: string | null;
            title: string;
            unresolved: string[];
            version: string;
            /** @enum {string} */
            version_source: "file" | "image" | "newest" | "request";
        };
        /** CheckFile */
        CheckFile: {
            content: string;
            path: string;
        };
        /** CheckReport */
        CheckReport: {
            counts: components["schemas"]["Counts"];
            engines: components["schemas"]["CheckedEngine"][];
            estimate: components["schemas"]["Estimate"] | null;
            findings: components["schemas"]["Finding"][];
            fingerprints: string[];
            fixed_files: components["schemas"]["CheckFile"][];
            provenance: components["schemas"]["Provenance"];
            reasons: string[];
            schema_version: number;
            summary: string;
            /** @enum {string} */
            verdict: "fail" | "inconclusive" | "pass";
            waived: components["schemas"]["WaivedFinding"][];
        };
        /** CheckRequest */
        CheckRequest: {
            baseline?: components["schemas"]["Baseline"] | null;
            command?: string | null;
            config?: components["schemas"]["EngineConfig"] | null;
            engine?: components["schemas"]["Engine"] | null;
            files?: components["schemas"]["CheckFile"][] | null;
            fix?: boolean;
            from_version?: string | null;
            hardware?: components["schemas"]["Hardware"] | null;
            model?: components["schemas"]["ModelRef"] | null;
            policy?: components["schemas"]["Policy"] | null;
            slo?: components["schemas"]["Slo"] | null;
            workload?: components["schemas"]["Workload"] | null;
        };
        /** Choices */
        Choices: {
            /** @enum {string} */
            kind: "choices";
            values: (boolean | number | string)[];
        };
        /** ClosedLoop */
        ClosedLoop: {
            /** @enum {string} */
            kind: "closed_loop";
            max_concurrency: number;
            num_requests?: number | null;
        };
        /** Compared */
        Compared: {
            answer_ms: number;
            capacity_output_tokens_per_s: number;
            chosen: boolean;
            config: components["schemas"]["EngineConfig"];
            copies: number;
            gpus: number;
            label: string;
            meets_slo: boolean;
            on_front: boolean;
        };
        /** ComparedFigure */
        ComparedFigure: {
            defaults: number;
            interval: [
                number,
                number
            ] | null;
            metric: string;
            /** @enum {string} */
            outcome: "better" | "no_difference_shown" | "worse";
            ratio: number;
            recommended: number;
            schema_version?: number;
        };
        /** Comparison */
        Comparison: {
            figures: components["schemas"]["ComparedFigure"][];
            schema_version?: number;
            starts_each: number;
        };
        /** Constraints */
        Constraints: {
            allow_enforce_eager?: boolean;
            allow_fp8_kv_cache?: boolean;
            allow_online_quantization?: boolean;
            max_tensor_parallel_size?: number | null;
            pin?: components["schemas"]["EngineConfig"] | null;
        };
        /** Cost */
        Cost: {
            per_hour: number;
            per_million_output_tokens: number | null;
        };
        /** Counts */
        Counts: {
            error: number;
            note: number;
            waived: number;
            warning: number;
        };
        /** CreatedApiKey */
        CreatedApiKey: {
            key: components["schemas"]["ApiKey"];
            secret: string;
        };
        /** Decision */
        Decision: {
            /** @enum {string} */
            confidence: "high" | "low" | "medium";
            formula: string | null;
            if_higher: string;
            if_lower: string;
            inputs: {
                [key: string]: Json;
            };
            reason: string;
            rule: string;
            setting: string;
            source: components["schemas"]["Source"][];
            value: Json;
        };
        /** DeliveryAttempt */
        DeliveryAttempt: {
            latency_ms: number;
            next_attempt_at?: string | null;
            number: number;
            /** @enum {string} */
            outcome: "address_refused" | "delivered" | "gone" | "record_missing" | "redirect_refused" | "refused" | "secret_missing" | "timed_out" | "unreachable";
            schema_version?: number;
            started_at: string;
            status_code?: number | null;
        };
        /** Engine */
        Engine: {
            config?: components["schemas"]["EngineConfig"] | null;
            env?: {
                [key: string]: string;
            } | null;
            version?: string | null;
        };
        EngineConfig: {
            [key: string]: Json;
        };
        /** EngineVersionDescription */
        EngineVersionDescription: {
            newest: boolean;
            settings_url: string;
            supported: boolean;
            version: string;
        };
        /** EngineVersionList */
        EngineVersionList: {
            items: components["schemas"]["EngineVersionDescription"][];
        };
        /** Environment */
        Environment: {
            as_asked: boolean;
            cpu: boolean;
            driver: string | null;
            gpus: components["schemas"]["WorkerDevice"][];
            node: string;
            schema_version?: number;
            setpoint_version: string;
            vllm_version: string;
        };
        /** Estimate */
        Estimate: {
            /** @enum {string} */
            basis: "calibrated" | "measured" | "modelled";
            defaults_applied: components["schemas"]["EngineConfig"];
            findings: components["schemas"]["Finding"][];
            fits: boolean;
            memory: components["schemas"]["MemoryBreakdown"] | null;
            performance: components["schemas"]["Performance"] | null;
            provenance: components["schemas"]["Provenance"];
            slo: components["schemas"]["TargetOutcome"][];
        };
        /** EstimateRequest */
        EstimateRequest: {
            engine?: components["schemas"]["Engine"] | null;
            hardware: components["schemas"]["Hardware"];
            model: components["schemas"]["ModelRef"];
            slo?: components["schemas"]["Slo"] | null;
            workload?: components["schemas"]["Workload"] | null;
        };
        /** Failure */
        Failure: {
            log_tail: string;
            reason: string;
            schema_version?: number;
            /** @enum {string} */
            stage: "lease" | "load" | "lost" | "no-worker" | "parse" | "ready" | "start";
        };
        /** FieldError */
        FieldError: {
            message: string;
            pointer: string;
        };
        /** FigureDescription */
        FigureDescription: {
            source: string;
            value: number | string;
            verified: boolean;
        };
        /** Finding */
        Finding: {
            location?: components["schemas"]["Location"] | null;
            message: string;
            rule: string;
            setting?: string | null;
            /** @enum {string} */
            severity: "error" | "note" | "warning";
            source?: components["schemas"]["Source"][];
            suggestion?: string | null;
        };
        /** FixedLength */
        FixedLength: {
            /** @enum {string} */
            kind: "fixed";
            tokens: number;
        };
        /** GammaArrivals */
        GammaArrivals: {
            burstiness: number;
            /** @enum {string} */
            kind: "gamma";
            num_requests?: number | null;
            requests_per_s: number;
        };
        /** GpuDescription */
        GpuDescription: {
            aliases: string[];
            arch: string;
            driver_name: string;
            figures: {
                [key: string]: components["schemas"]["FigureDescription"];
            };
            gpu_class: string;
            name: string;
            note: string | null;
            unified_memory: boolean;
            vendor: string;
        };
        /** GpuList */
        GpuList: {
            items: components["schemas"]["GpuSummary"][];
        };
        /** GpuSpec */
        GpuSpec: {
            bandwidth_gb_s: number;
            bf16_tflops: number;
            compute_capability: string;
            fp4_tflops?: number | null;
            fp8_tflops?: number | null;
            int8_tops?: number | null;
            link_gb_s?: number | null;
            memory_gib: number;
            pcie_gb_s?: number | null;
            unified_memory?: boolean;
        };
        /** GpuSummary */
        GpuSummary: {
            arch: string;
            bandwidth_gb_s: number;
            memory_gib: number;
            name: string;
            url: string;
            vendor: string;
        };
        /** Hardware */
        Hardware: {
            gpu: string;
            gpus_per_node?: number | null;
            host_memory_gib?: number | null;
            interconnect?: ("none" | "nvlink" | "pcie" | "xgmi") | null;
            nodes?: number;
            price_per_gpu_hour?: number | null;
            spec?: components["schemas"]["GpuSpec"] | null;
            total_memory_gib?: number | null;
            used_memory_gib?: number;
        };
        /** HistogramLength */
        HistogramLength: {
            /** @enum {string} */
            kind: "histogram";
            upper: number[];
            weight: number[];
        };
        /** IntegerRange */
        IntegerRange: {
            high: number;
            /** @enum {string} */
            kind: "integers";
            log?: boolean;
            low: number;
            step?: number;
        };
        /** Knee */
        Knee: {
            confirmed?: boolean;
            max_num_seqs: number;
            reason: string;
            requests_per_s: number;
            schema_version?: number;
        };
        /** LatencyTarget */
        LatencyTarget: {
            limit_ms: number;
            /** @enum {string} */
            metric: "e2el" | "itl" | "tpot" | "ttft";
            percentile: (50 | 90 | 95 | 99) | "mean";
        };
        /** Liveness */
        Liveness: {
            /** @enum {string} */
            status: "ok";
        };
        /** LoadPoint */
        LoadPoint: {
            completed: number;
            config: components["schemas"]["EngineConfig"];
            duration_s: number;
            e2el_ms: components["schemas"]["Percentiles"];
            error_percent: {
                [key: string]: number;
            };
            failed: number;
            goodput_requests_per_s: number | null;
            itl_ms: components["schemas"]["Percentiles"];
            kv_cache_usage_peak: number | null;
            label: string;
            num_requests: number;
            offered: components["schemas"]["PoissonArrivals"] | components["schemas"]["GammaArrivals"] | components["schemas"]["ClosedLoop"] | components["schemas"]["BatchArrivals"] | components["schemas"]["Users"] | components["schemas"]["Trace"];
            output_tokens_per_s: number;
            predicted: {
                [key: string]: number;
            };
            preemptions: number | null;
            preemptions_per_request: number | null;
            prefix_cache_hit_ratio: number | null;
            queue_time_mean_ms: number | null;
            requests_per_s: number;
            running_peak: number | null;
            schema_version?: number;
            seed: number;
            tpot_ms: components["schemas"]["Percentiles"];
            ttft_ms: components["schemas"]["Percentiles"];
            waiting_peak: number | null;
        };
        /** Location */
        Location: {
            column: number;
            file: string;
            line: number;
        };
        /** LognormalLength */
        LognormalLength: {
            /** @enum {string} */
            kind: "lognormal";
            mean: number;
            p99: number;
        };
        /** Lora */
        Lora: {
            max_adapters: number;
            max_rank: number;
        };
        /** MeasuredOutcome */
        MeasuredOutcome: {
            interval: [
                number,
                number | null
            ];
            measured: number;
            predicted: number | null;
            schema_version?: number;
            target: {
                [key: string]: number | string;
            };
            /** @enum {string} */
            verdict: "met" | "missed" | "uncertain";
        };
        /** Measurement */
        Measurement: {
            configuration?: string | null;
            cpu: boolean;
            created_at: string;
            digest: string;
            engine: components["schemas"]["Engine"];
            hardware: components["schemas"]["Hardware"];
            id: string;
            labels?: {
                [key: string]: string;
            };
            measured_at?: string | null;
            model: components["schemas"]["ModelRef"];
            notes?: string[];
            observed: components["schemas"]["Observed"];
            schema_version?: number;
            source: components["schemas"]["MeasurementSource"];
            workload: components["schemas"]["Workload"];
        };
        /** MeasurementPage */
        MeasurementPage: {
            items: components["schemas"]["Measurement"][];
            next_cursor: string | null;
        };
        /** MeasurementRequest */
        MeasurementRequest: {
            cpu?: boolean;
            engine: components["schemas"]["Engine"];
            hardware: components["schemas"]["Hardware"];
            labels?: {
                [key: string]: string;
            };
            measured_at?: string | null;
            model: components["schemas"]["ModelRef"];
            observed?: components["schemas"]["Observed"] | null;
            reference?: string | null;
            report?: {
                [key: string]: Json;
            } | null;
            workload?: components["schemas"]["Workload"] | null;
        };
        /** MeasurementsCreated */
        MeasurementsCreated: {
            calibrations: components["schemas"]["Calibration"][];
            items: components["schemas"]["Measurement"][];
        };
        /** MeasurementSource */
        MeasurementSource: {
            reference?: string | null;
            /** @enum {string} */
            tool?: "guidellm" | "stated" | "validation" | "vllm_bench";
            validation_id?: string | null;
        };
        /** MemoryBreakdown */
        MemoryBreakdown: {
            activation_gib: number;
            band: {
                [key: string]: number[];
            };
            block_size: number;
            cuda_graphs_gib: number;
            kv_bytes_per_token: number;
            kv_cache_blocks: number;
            kv_cache_gib: number;
            kv_cache_tokens: number;
            largest_max_model_len: number;
            max_concurrency: number;
            max_model_len: number;
            non_torch_gib: number;
            requested_gib: number;
            total_gib: number;
            weights_gib: number;
        };
        /** MetricResidual */
        MetricResidual: {
            after_percent: number;
            before_percent: number;
            points: number;
            schema_version?: number;
        };
        /** ModelDescription */
        ModelDescription: {
            aliases: string[];
            architecture: string;
            assumed: string[];
            config: {
                [key: string]: Json;
            };
            id: string;
            note: string | null;
            /** @enum {string} */
            origin: "bundled" | "registered";
            parameters: number | null;
            source: components["schemas"]["Source"][];
            supported: boolean;
            weights_bytes: number | null;
        };
        /** ModelList */
        ModelList: {
            items: components["schemas"]["ModelSummary"][];
        };
        /** ModelRef */
        ModelRef: {
            config?: {
                [key: string]: Json;
            } | null;
            id: string;
            lora?: components["schemas"]["Lora"] | null;
            revision?: string | null;
            speculative?: components["schemas"]["Speculative"] | null;
            weights_bytes?: number | null;
        };
        /** ModelRegistration */
        ModelRegistration: {
            config: {
                [key: string]: Json;
            };
            weights_bytes?: number | null;
        };
        /** ModelSummary */
        ModelSummary: {
            architecture: string;
            id: string;
            /** @enum {string} */
            origin: "bundled" | "registered";
            supported: boolean;
            url: string;
        };
        /** Nearest */
        Nearest: {
            change: string;
            config: components["schemas"]["EngineConfig"] | null;
            constraints?: components["schemas"]["Constraints"] | null;
            detail: string;
            engine?: components["schemas"]["TargetEngine"] | null;
            hardware: components["schemas"]["Hardware"] | null;
            slo: components["schemas"]["Slo"] | null;
            workload?: components["schemas"]["Workload"] | null;
        };
        /** NumberRange */
        NumberRange: {
            high: number;
            /** @enum {string} */
            kind: "numbers";
            low: number;
        };
        /** Objective */
        Objective: {
            /** @enum {string} */
            direction: "maximize" | "minimize";
            /** @enum {string} */
            metric: "e2el_ms_p50" | "e2el_ms_p95" | "output_tokens_per_s" | "preemptions_per_request" | "requests_per_s" | "tpot_ms_p50" | "tpot_ms_p95" | "tpot_ms_p99" | "ttft_ms_p50" | "ttft_ms_p95" | "ttft_ms_p99";
        };
        /** Observed */
        Observed: {
            completed?: number | null;
            duration_s?: number | null;
            e2el_ms?: components["schemas"]["Statistics"] | null;
            failed?: number | null;
            itl_ms?: components["schemas"]["Statistics"] | null;
            kv_cache_gib?: number | null;
            kv_cache_tokens?: number | null;
            kv_cache_usage_peak?: number | null;
            output_tokens_per_s?: number | null;
            preemptions_per_request?: number | null;
            requests_per_s?: number | null;
            total_tokens_per_s?: number | null;
            tpot_ms?: components["schemas"]["Statistics"] | null;
            ttft_ms?: components["schemas"]["Statistics"] | null;
        };
        /** Percentiles */
        Percentiles: {
            mean: number;
            p50: number;
            p90: number;
            p95: number;
            p99: number;
        };
        /** Performance */
        Performance: {
            band: {
                [key: string]: number[];
            };
            e2el_ms: components["schemas"]["Percentiles"];
            goodput_requests_per_s: number;
            itl_ms: components["schemas"]["Percentiles"];
            kv_cache_usage: number;
            output_tokens_per_s: number;
            preemptions_per_request: number;
            requests_per_s: number;
            running_requests: number;
            saturated: boolean;
            total_tokens_per_s: number;
            tpot_ms: components["schemas"]["Percentiles"];
            ttft_ms: components["schemas"]["Percentiles"];
            waiting_requests: number;
        };
        /** PoissonArrivals */
        PoissonArrivals: {
            /** @enum {string} */
            kind: "poisson";
            num_requests?: number | null;
            requests_per_s: number;
        };
        /** Policy */
        Policy: {
            allowed_engine_versions?: string[] | null;
            /** @enum {string} */
            fail_on?: "error" | "warning";
            max_gpus?: number | null;
            max_preemptions_per_request?: number | null;
            min_confidence?: ("high" | "low" | "medium") | null;
            require_measured_within_days?: number | null;
            targets?: components["schemas"]["LatencyTarget"][];
            waivers?: components["schemas"]["Waiver"][];
        };
        /** PresetDescription */
        PresetDescription: {
            /** @enum {string} */
            name: "agent" | "api" | "batch" | "chat" | "code_completion" | "code_generation" | "long_context" | "rag" | "realtime" | "reasoning" | "summarization";
            slo: components["schemas"]["Slo"];
            source: components["schemas"]["Source"][];
            title: string;
            workload: components["schemas"]["Workload"];
        };
        /** PresetList */
        PresetList: {
            items: components["schemas"]["PresetDescription"][];
        };
        /** Problem */
        Problem: {
            /** @enum {string} */
            code: "conflict" | "forbidden" | "idempotency-in-progress" | "idempotency-key-reused" | "internal-error" | "invalid-request" | "method-not-allowed" | "no-worker" | "not-acceptable" | "not-found" | "precondition-failed" | "rate-limited" | "store-unavailable" | "too-large" | "unauthorized" | "unknown-engine-version" | "unknown-gpu" | "unknown-model" | "unsupported-architecture" | "unsupported-media-type";
            detail: string;
            errors: components["schemas"]["FieldError"][];
            instance: string;
            request_id: string;
            status: number;
            title: string;
            type: string;
        };
        /** ProblemType */
        ProblemType: {
            /** @enum {string} */
            code: "conflict" | "forbidden" | "idempotency-in-progress" | "idempotency-key-reused" | "internal-error" | "invalid-request" | "method-not-allowed" | "no-worker" | "not-acceptable" | "not-found" | "precondition-failed" | "rate-limited" | "store-unavailable" | "too-large" | "unauthorized" | "unknown-engine-version" | "unknown-gpu" | "unknown-model" | "unsupported-architecture" | "unsupported-media-type";
            status: number;
            title: string;
        };
        /** Provenance */
        Provenance: {
            calibration?: components["schemas"]["CalibratedBy"];
            catalogue_version: string;
            coefficients_version: string;
            engine_version: string;
            seed: number;
            setpoint_version: string;
        };
        /** QueueChoice */
        QueueChoice: {
            gpu?: string | null;
            node?: string | null;
        };
        /** QueueState */
        QueueState: {
            oldest_waiting_s: number | null;
            queue: string;
            schema_version?: number;
            waiting: number;
        };
        /** Readiness */
        Readiness: {
            /** @enum {string} */
            status: "ok";
            /** @enum {string} */
            store: "ok";
        };
        /** Recommendation */
        Recommendation: {
            all_copies: components["schemas"]["AllCopies"];
            alternatives: components["schemas"]["Alternative"][];
            baseline: components["schemas"]["Estimate"];
            baseline_all_copies: components["schemas"]["AllCopies"];
            binding: components["schemas"]["Binding"] | null;
            compared: components["schemas"]["Compared"][];
            config: components["schemas"]["EngineConfig"];
            cost: components["schemas"]["Cost"] | null;
            created_at: string;
            decisions: components["schemas"]["Decision"][];
            estimate: components["schemas"]["Estimate"];
            feasible: boolean;
            files: components["schemas"]["RenderedFile"][];
            findings: components["schemas"]["Finding"][];
            headline: string;
            id: string;
            labels: {
                [key: string]: string;
            };
            measured: Json | null;
            nearest: components["schemas"]["Nearest"] | null;
            provenance: components["schemas"]["Provenance"];
            replicas: components["schemas"]["Replicas"];
            request: components["schemas"]["UnderstoodRequest"];
            validations: components["schemas"]["ValidationLink"][];
            watch: components["schemas"]["Watch"][];
        };
        /** RecommendationPage */
        RecommendationPage: {
            items: components["schemas"]["RecommendationSummary"][];
            next_cursor: string | null;
        };
        /** RecommendationSummary */
        RecommendationSummary: {
            created_at: string;
            feasible: boolean;
            gpu: string;
            headline: string;
            id: string;
            labels: {
                [key: string]: string;
            };
            model: string;
            url: string;
        };
        /** RenderedFile */
        RenderedFile: {
            content: string;
            media_type: string;
            path: string;
        };
        /** Replicas */
        Replicas: {
            count: number;
            gpus: number;
            requests_per_s_each: number | null;
        };
        /** RotationRequest */
        RotationRequest: {
            overlap_s?: number;
        };
        /** RuleDescription */
        RuleDescription: {
            help: string;
            id: string;
            settings: string[];
            /** @enum {string} */
            severity: "error" | "note" | "warning";
            since: string | null;
            source: components["schemas"]["Source"][];
            title: string;
            until: string | null;
        };
        /** RuleList */
        RuleList: {
            items: components["schemas"]["RuleDescription"][];
        };
        /** SampleLengths */
        SampleLengths: {
            /** @enum {string} */
            kind: "samples";
            tokens: number[];
        };
        /** ServiceIndex */
        ServiceIndex: {
            links: {
                [key: string]: string;
            };
            name: string;
            version: string;
        };
        /** SettingDescription */
        SettingDescription: {
            choices: (string | number)[] | null;
            flag: string;
            introduced: string | null;
            name: string;
            note: string;
            removed: string | null;
            replaced_by: string[];
        };
        /** SettingList */
        SettingList: {
            items: components["schemas"]["SettingDescription"][];
            version: string;
        };
        /** ShortEstimate */
        ShortEstimate: {
            e2el_ms_p95: number | null;
            kv_cache_tokens: number;
            max_concurrency: number;
            meets_slo: boolean | null;
            output_tokens_per_s: number | null;
            output_tokens_per_s_per_gpu: number | null;
            preemptions_per_request: number | null;
            requests_per_s: number | null;
            tpot_ms_p95: number | null;
            ttft_ms_p95: number | null;
        };
        /** Slo */
        Slo: {
            max_cost_per_million_output_tokens?: number | null;
            max_preemptions_per_request?: number | null;
            min_output_tokens_per_s?: number | null;
            min_requests_per_s?: number | null;
            targets?: components["schemas"]["LatencyTarget"][];
        };
        /** Source */
        Source: {
            title: string;
            where: string;
        };
        /** Speculative */
        Speculative: {
            acceptance?: number | null;
            /** @enum {string} */
            method: "draft_model" | "eagle" | "eagle3" | "mtp" | "ngram";
            model?: components["schemas"]["ModelRef"] | null;
            num_tokens: number;
        };
        /** Startup */
        Startup: {
            cuda_graphs_gib?: number | null;
            error_percent: {
                [key: string]: number;
            };
            kv_cache_gib?: number | null;
            kv_cache_tokens?: number | null;
            max_concurrency?: number | null;
            predicted: components["schemas"]["StartupFigures"];
            schema_version?: number;
            seconds?: number | null;
            weights_gib?: number | null;
        };
        /** StartupFigures */
        StartupFigures: {
            cuda_graphs_gib?: number | null;
            kv_cache_gib?: number | null;
            kv_cache_tokens?: number | null;
            max_concurrency?: number | null;
            schema_version?: number;
            seconds?: number | null;
            weights_gib?: number | null;
        };
        /** Statistics */
        Statistics: {
            mean?: number | null;
            p50?: number | null;
            p90?: number | null;
            p95?: number | null;
            p99?: number | null;
            unspecified?: number | null;
        };
        /** Study */
        Study: {
            attempt?: number;
            baseline?: number | null;
            best?: number | null;
            created_at: string;
            environment?: components["schemas"]["Environment"] | null;
            failure?: components["schemas"]["Failure"] | null;
            finished_at?: string | null;
            id: string;
            notes?: string[];
            pareto?: number[];
            progress: number;
            queue?: string;
            request: components["schemas"]["StudyRequest"];
            schema_version?: number;
            stage: string;
            started_at?: string | null;
            /** @enum {string} */
            status: "cancelled" | "failed" | "queued" | "running" | "succeeded" | "timed_out";
            traceparent?: string | null;
            trials?: components["schemas"]["StudyTrial"][];
        };
        /** StudyChange */
        StudyChange: {
            id: string;
            progress?: number;
            stage?: string;
            /** @enum {string} */
            status?: "cancelled" | "failed" | "queued" | "running" | "succeeded" | "timed_out";
        };
        /** StudyPage */
        StudyPage: {
            items: components["schemas"]["StudySummary"][];
            next_cursor: string | null;
        };
        /** StudyRequest */
        StudyRequest: {
            labels?: {
                [key: string]: string;
            };
            max_minutes?: number;
            max_trials?: number;
            model_path?: string | null;
            objectives?: components["schemas"]["Objective"][];
            queue?: components["schemas"]["QueueChoice"] | null;
            recommendation_id: string;
            seed?: number;
            space: {
                [key: string]: components["schemas"]["Choices"] | components["schemas"]["IntegerRange"] | components["schemas"]["NumberRange"];
            };
            trial_minutes?: number;
            webhook?: components["schemas"]["Webhook"] | null;
            /** @enum {string} */
            when_no_worker?: "reject" | "wait";
        };
        /** StudySummary */
        StudySummary: {
            best: number | null;
            created_at: string;
            id: string;
            progress: number;
            recommendation_id: string;
            /** @enum {string} */
            status: "cancelled" | "failed" | "queued" | "running" | "succeeded" | "timed_out";
            trials: number;
            url: string;
        };
        /** StudyTrial */
        StudyTrial: {
            config: components["schemas"]["EngineConfig"];
            load_point?: components["schemas"]["LoadPoint"] | null;
            measured?: {
                [key: string]: number;
            };
            meets?: boolean | null;
            number: number;
            /** @enum {string} */
            origin: "baseline" | "prior" | "recommended" | "search";
            parameters: {
                [key: string]: Json;
            };
            predicted?: {
                [key: string]: number;
            };
            reason?: string | null;
            schema_version?: number;
            seconds?: number | null;
            /** @enum {string} */
            state: "complete" | "failed" | "pruned" | "running";
            violations?: {
                [key: string]: number;
            };
        };
        /** TargetEngine */
        TargetEngine: {
            version?: string | null;
        };
        /** TargetOutcome */
        TargetOutcome: {
            margin: number;
            predicted: number | null;
            predicted_ms: number | null;
            target: {
                [key: string]: number | string;
            };
            /** @enum {string} */
            verdict: "met" | "missed" | "uncertain";
        };
        /** Trace */
        Trace: {
            at_s: number[];
            /** @enum {string} */
            kind: "trace";
            output_tokens: number[];
            prompt_tokens: number[];
        };
        /** TuningRequest */
        TuningRequest: {
            constraints?: components["schemas"]["Constraints"] | null;
            engine?: components["schemas"]["TargetEngine"] | null;
            hardware: components["schemas"]["Hardware"];
            labels?: {
                [key: string]: string;
            };
            model: components["schemas"]["ModelRef"];
            /** @enum {string} */
            objective?: "balanced" | "cost" | "latency" | "throughput";
            /** @enum {string} */
            posture?: "aggressive" | "production";
            slo?: components["schemas"]["Slo"] | null;
            validation?: components["schemas"]["ValidationPlan"] | null;
            workload?: components["schemas"]["Workload"] | null;
        };
        /** UnderstoodRequest */
        UnderstoodRequest: {
            assumptions: string[];
            constraints: components["schemas"]["Constraints"];
            engine: components["schemas"]["TargetEngine"];
            hardware: components["schemas"]["Hardware"];
            model: components["schemas"]["ModelRef"];
            /** @enum {string} */
            objective: "balanced" | "cost" | "latency" | "throughput";
            /** @enum {string} */
            posture: "aggressive" | "production";
            slo: components["schemas"]["Slo"];
            workload: components["schemas"]["Workload"];
        };
        /** UniformLength */
        UniformLength: {
            high: number;
            /** @enum {string} */
            kind: "uniform";
            low: number;
        };
        /** Users */
        Users: {
            active_fraction?: number | null;
            /** @enum {string} */
            kind: "users";
            peak_factor?: number | null;
            requests_per_active_user_per_min?: number | null;
            users: number;
        };
        /** Validation */
        Validation: {
            attempt?: number;
            command?: string[];
            comparison?: components["schemas"]["Comparison"] | null;
            created_at: string;
            environment?: components["schemas"]["Environment"] | null;
            failure?: components["schemas"]["Failure"] | null;
            finished_at?: string | null;
            id: string;
            knee?: components["schemas"]["Knee"] | null;
            load_points?: components["schemas"]["LoadPoint"][];
            /** @enum {string} */
            mode: "boot" | "compare" | "knee" | "quick" | "soak";
            notes?: string[];
            plan: components["schemas"]["ValidationPlan"];
            progress: number;
            queue?: string;
            recommendation_id: string;
            schema_version?: number;
            slo?: components["schemas"]["MeasuredOutcome"][];
            stage: string;
            started_at?: string | null;
            startup?: components["schemas"]["Startup"] | null;
            /** @enum {string} */
            status: "cancelled" | "failed" | "leasing" | "measuring" | "queued" | "starting" | "succeeded" | "timed_out" | "warming_up";
            suggested_config?: components["schemas"]["EngineConfig"] | null;
            traceparent?: string | null;
            verdict?: ("fail" | "inconclusive" | "pass") | null;
        };
        /** ValidationChange */
        ValidationChange: {
            id: string;
            progress?: number;
            stage?: string;
            /** @enum {string} */
            status?: "cancelled" | "failed" | "leasing" | "measuring" | "queued" | "starting" | "succeeded" | "timed_out" | "warming_up";
            verdict?: ("fail" | "inconclusive" | "pass") | null;
        };
        /** ValidationLink */
        ValidationLink: {
            id: string;
            status: string;
            url: string;
            verdict: string | null;
        };
        /** ValidationPlan */
        ValidationPlan: {
            max_minutes?: number;
            /** @enum {string} */
            mode: "boot" | "compare" | "knee" | "quick" | "soak";
            model_path?: string | null;
            queue?: components["schemas"]["QueueChoice"] | null;
            webhook?: components["schemas"]["Webhook"] | null;
            /** @enum {string} */
            when_no_worker?: "reject" | "wait";
        };
        /** VllmEnvironment */
        VllmEnvironment: {
            is_cpu: boolean;
            path: string;
            version: string;
        };
        /** WaivedFinding */
        WaivedFinding: {
            finding: components["schemas"]["Finding"];
            owner: string | null;
            reason: string;
            until: string;
        };
        /** Waiver */
        Waiver: {
            owner?: string | null;
            path?: string | null;
            reason: string;
            rule: string;
            until: string;
        };
        /** Watch */
        Watch: {
            meaning: string;
            metric: string;
            then: string;
            threshold: string;
        };
        /** Webhook */
        Webhook: {
            secret_ref: string;
            url: string;
        };
        /** WebhookDelivery */
        WebhookDelivery: {
            attempts?: components["schemas"]["DeliveryAttempt"][];
            created_at: string;
            event: string;
            id: string;
            next_attempt_at?: string | null;
            replays?: number;
            schema_version?: number;
            secret_ref: string;
            /** @enum {string} */
            status: "delivered" | "failed" | "pending";
            study_id?: string | null;
            url: string;
            validation_id?: string | null;
        };
        /** WebhookDeliveryPage */
        WebhookDeliveryPage: {
            items: components["schemas"]["WebhookDelivery"][];
            next_cursor: string | null;
        };
        /** WorkerDevice */
        WorkerDevice: {
            compute_capability?: string | null;
            foreign_processes?: number;
            free_gib: number;
            max_memory_clock_mhz?: number | null;
            max_sm_clock_mhz?: number | null;
            memory_clock_mhz?: number | null;
            memory_gib: number;
            mig?: boolean;
            name: string;
            nvlink_peers?: string[];
            pcie_paths?: {
                [key: string]: "board" | "host_bridge" | "numa_node" | "switch" | "switches" | "system";
            };
            slice_of?: string | null;
            sm_clock_mhz?: number | null;
            uuid: string;
        };
        /** WorkerList */
        WorkerList: {
            items: components["schemas"]["WorkerNode"][];
            queues?: components["schemas"]["QueueState"][];
            schema_version?: number;
        };
        /** WorkerNode */
        WorkerNode: {
            devices: components["schemas"]["WorkerDevice"][];
            driver: string | null;
            environments: components["schemas"]["VllmEnvironment"][];
            heartbeat_at: string;
            node: string;
            queues: string[];
            schema_version?: number;
            setpoint_version: string;
            started_at: string;
        };
        /** Workload */
        Workload: {
            arrivals?: (components["schemas"]["PoissonArrivals"] | components["schemas"]["GammaArrivals"] | components["schemas"]["ClosedLoop"] | components["schemas"]["BatchArrivals"] | components["schemas"]["Users"] | components["schemas"]["Trace"]) | null;
            max_request_tokens?: number | null;
            output_tokens?: number | (components["schemas"]["FixedLength"] | components["schemas"]["UniformLength"] | components["schemas"]["LognormalLength"] | components["schemas"]["HistogramLength"] | components["schemas"]["SampleLengths"]) | null;
            preset?: ("agent" | "api" | "batch" | "chat" | "code_completion" | "code_generation" | "long_context" | "rag" | "realtime" | "reasoning" | "summarization") | null;
            prompt_tokens?: number | (components["schemas"]["FixedLength"] | components["schemas"]["UniformLength"] | components["schemas"]["LognormalLength"] | components["schemas"]["HistogramLength"] | components["schemas"]["SampleLengths"]) | null;
            shared_prefix_tokens?: number | null;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
