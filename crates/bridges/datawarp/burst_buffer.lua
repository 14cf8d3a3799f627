-- Slurm's plugin burst_buffer/lua on a Forebay pool: docs/slurm.md.
--
-- Each function of the plugin is one call of dw_wlm_cli. What the command says becomes the reason
-- that Slurm shows. Newer versions of Slurm pass more arguments, which are not needed here.

-- Directory of dw_wlm_cli and dwstat.
local programs = os.getenv("FOREBAY_PROGRAMS") or "/usr/bin"

local function quote(word)
	return "'" .. string.gsub(word, "'", "'\\''") .. "'"
end

-- Runs a shell command. Returns whether it succeeded, and its output on both streams.
-- Lua 5.1 does not return the exit status of a pipe, so the shell appends it.
local function run(command)
	local pipe, message = io.popen("exec 2>&1; " .. command .. "; printf '\\n%d' $?")
	if not pipe then
		return false, "cannot start a shell: " .. tostring(message)
	end
	local text = pipe:read("*a")
	pipe:close()
	local output, status = string.match(text, "^(.*)\n(%d+)$")
	if not output then
		return false, "killed: " .. text
	end
	return status == "0", output
end

local function command_of(program, words)
	local quoted = { quote(programs .. "/" .. program) }
	for _, word in ipairs(words) do
		quoted[#quoted + 1] = quote(word)
	end
	return table.concat(quoted, " ")
end

-- The two results of a function of the plugin.
local function results(succeeded, text)
	text = string.gsub(text, "%s+$", "")
	if succeeded then
		return slurm.SUCCESS, text
	end
	slurm.log_error("dw_wlm_cli: %s", text)
	return slurm.ERROR, text
end

local function call(name, ...)
	return results(run(command_of("dw_wlm_cli", { "--function", name, ... })))
end

-- At submission. An error refuses the job and is shown to the user.
function slurm_bb_job_process(job_script)
	return call("job_process", "--job", job_script)
end

-- At intervals, in slurmctld. Slurm can kill the teardown of a job that is cancelled before it starts,
-- and does not repeat it, so instances of ended jobs are looked for. That asks Slurm for its jobs, which
-- slurmctld does not answer while it waits for this function.
function slurm_bb_pools()
	local reclaim = command_of("dw_wlm_cli", { "--function", "reclaim" })
	os.execute("setsid timeout 25 " .. reclaim .. " </dev/null >/dev/null 2>&1 &")
	return call("pools")
end

-- Creates the job's instance.
function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script)
	return call("setup", "--token", job_id, "--user", uid, "--groupid", gid, "--caller", "SLURM",
		"--capacity", pool .. ":" .. bb_size, "--job", job_script)
end

function slurm_bb_data_in(job_id, job_script)
	return call("data_in", "--token", job_id, "--job", job_script)
end

-- The bytes that were allocated.
function slurm_bb_real_size(job_id)
	local status, text = call("real_size", "--token", job_id)
	if status ~= slurm.SUCCESS then
		return status, text
	end
	return status, string.match(text, '"capacity":(%d+)') or "0"
end

-- The environment of the job's processes.
function slurm_bb_paths(job_id, job_script, path_file)
	return call("paths", "--token", job_id, "--job", job_script, "--pathfile", path_file)
end

-- Mounts the instance on the job's nodes, which the plugin does not pass.
function slurm_bb_pre_run(job_id, job_script)
	local known, text = run("squeue --noheader --states=all --jobs=" .. quote(job_id) .. " --format='%A %N'")
	if not known then
		return results(known, text)
	end
	-- Other components of the job are listed as well.
	local nodes = string.match("\n" .. text, "\n" .. job_id .. " (%S+)")
	if not nodes then
		return results(false, "squeue shows no nodes of job " .. job_id .. ": " .. text)
	end
	local mount = command_of("dw_wlm_cli", { "--function", "pre_run", "--token", job_id,
		"--job", job_script, "--nodehostnamefile", "/dev/stdin" })
	return results(run("scontrol show hostnames " .. quote(nodes) .. " | " .. mount))
end

function slurm_bb_post_run(job_id, job_script)
	return call("post_run", "--token", job_id, "--job", job_script)
end

function slurm_bb_data_out(job_id, job_script)
	return call("data_out", "--token", job_id, "--job", job_script)
end

-- Removes the instance, if there is one. Unless hurry is "true", results are staged out first.
function slurm_bb_job_teardown(job_id, job_script, hurry)
	local words = { "--function", "teardown", "--token", job_id, "--job", job_script }
	if hurry == "true" then
		words[#words + 1] = "--hurry"
	end
	local removed, text = run(command_of("dw_wlm_cli", words))
	if not removed and string.find(text, "token not found", 1, true) then
		return slurm.SUCCESS
	end
	return results(removed, text)
end

-- scontrol show bbstat: arguments of dwstat. Newer versions pass the ids of user and group first.
function slurm_bb_get_status(...)
	local words = {}
	for _, word in ipairs({ ... }) do
		if #words > 0 or not string.match(word, "^%d+$") then
			words[#words + 1] = word
		end
	end
	local known, text = run(command_of("dwstat", words))
	return known and slurm.SUCCESS or slurm.ERROR, text .. "\n"
end
