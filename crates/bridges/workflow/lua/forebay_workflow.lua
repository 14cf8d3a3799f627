-- Workflow jobs at their submission, for Slurm's job_submit/lua.
--
-- The site's job_submit.lua contains
--
--     local workflow = dofile("/usr/share/forebay/forebay_workflow.lua")
--     function slurm_job_submit(job, partitions, uid)
--         return workflow.submit(job, uid)
--     end
--     function slurm_job_modify(job, record, partitions, uid)
--         return slurm.SUCCESS
--     end
--
-- The options come from the SPANK plugin, in the job's SPANK environment, which sbatch, salloc and
-- srun send whatever --export says.

local workflow = {
    -- Checks the #NORNS lines of a script.
    checker = "/usr/bin/forebay-workflow check",
}

local PREFIX = "_SLURM_SPANK_OPTION_forebay_workflow_workflow_"

-- The options of a job: a table with start, stop and prior.
local function options_of(job)
    local found = {}
    for _, entry in pairs(job.spank_job_env or {}) do
        local name, value = entry:match("^([^=]+)=(.*)$")
        if name == PREFIX .. "start" then
            found.start = true
        elseif name == PREFIX .. "end" then
            found.stop = true
        elseif name == PREFIX .. "prior_dependency" then
            found.prior = value
        end
    end
    return found
end

local function refuse(text)
    slurm.log_user("%s", text)
    return slurm.ERROR
end

-- Checks the jobs that a job names; returns the error, if there is one. Slurm's table of jobs may
-- be a second old, so that the newest jobs are left to the controller, which cancels a job after one
-- that is no workflow job of the user.
local function check_prior(prior, uid)
    local ids, known, newest = {}, {}, 0
    for id in prior:gmatch("[^,]+") do
        if not id:match("^%d+$") then
            return "--workflow-prior-dependency: `" .. id .. "` is no job id"
        end
        ids[#ids + 1] = tonumber(id)
    end
    for _, other in pairs(slurm.jobs) do
        known[other.job_id] = other
        newest = math.max(newest, other.job_id)
    end
    for _, id in ipairs(ids) do
        local other = known[id]
        if (other == nil and id < newest) or (other ~= nil and other.user_id ~= uid) then
            return "--workflow-prior-dependency: you have no job " .. id ..
                " in the queue; name jobs that `squeue -t all` shows"
        end
        if other ~= nil and not (other.admin_comment or ""):find("forebay-workflow", 1, true) then
            return "--workflow-prior-dependency: job " .. id ..
                " belongs to no workflow; submit it with --workflow-start"
        end
    end
    if #ids == 0 then
        return "--workflow-prior-dependency: no jobs; write their ids, such as 5656,5666"
    end
    return nil
end

-- Runs the checker on a script; returns its message if it refuses the script.
local function check_script(script)
    local name = os.tmpname()
    local file = io.open(name, "w")
    if file == nil then
        return "the #NORNS lines cannot be checked: no temporary file"
    end
    file:write(script)
    file:close()
    local pipe = io.popen(workflow.checker .. " " .. name .. " 2>&1; echo \"exit $?\"")
    local output = pipe:read("*a")
    pipe:close()
    os.remove(name)
    local text, code = output:match("^(.-)%s*exit (%d+)%s*$")
    if code == "0" then
        return nil
    end
    return (text or output):gsub("^error: ", "")
end

-- Checks a job; sets its dependency, its mark, and the hold. Returns Slurm's code.
function workflow.submit(job, uid)
    local options = options_of(job)
    local has_lines = job.script ~= nil and ("\n" .. job.script):find("\n#NORNS%s") ~= nil
    if not (options.start or options.stop or options.prior or has_lines) then
        return slurm.SUCCESS
    end
    if job.array_inx ~= nil then
        return refuse("a workflow job cannot be an array; submit one job for each task")
    end
    if options.start and options.prior then
        return refuse("--workflow-start and --workflow-prior-dependency exclude each other: a job " ..
            "begins a workflow or continues one")
    end
    if has_lines and not (options.start or options.prior) then
        return refuse("#NORNS lines belong to a workflow: add --workflow-start (and --workflow-end " ..
            "if the job is alone)")
    end
    if options.stop and not (options.start or options.prior) then
        return refuse("--workflow-end: name the jobs before with --workflow-prior-dependency")
    end
    local problem = options.prior and check_prior(options.prior, job.user_id or uid)
    if problem == nil and has_lines then
        problem = check_script(job.script)
    end
    if problem then
        return refuse(problem)
    end
    local flag = function(set) return set and "1" or "0" end
    local mark = "forebay-workflow start=" .. flag(options.start) ..
        " end=" .. flag(options.stop) .. " held=" .. flag(job.priority == 0)
    if options.prior then
        mark = mark .. " prior=" .. options.prior
        local wanted = "afterok:" .. options.prior:gsub(",", ":")
        if job.dependency ~= nil and job.dependency ~= "" then
            if job.dependency:find("?", 1, true) then
                return refuse("a workflow job cannot have alternative dependencies (`?`)")
            end
            wanted = job.dependency .. "," .. wanted
        end
        job.dependency = wanted
        -- The controller releases it, with the nodes that have its data.
        job.priority = 0
    end
    job.admin_comment = mark
    return slurm.SUCCESS
end

return workflow
